// Package fetch brings models that a campaign names, but that are no files of the user's, into the cache: files of a model
// hub, hf:OWNER/REPO/FILE, and synthetic ones, synth:SHAPE.
//
// A model has a folder of its own in the cache, models/KEY, whose name says what is in it: the SHA-256 that a download must
// have, or everything that decides a synthetic model. It is filled as models/KEY.partial and renamed when it is whole, so a
// folder without that ending is complete. A download that was broken off goes on where it stopped, in this process or
// the next.
//
// The package resolves no branches, lists no repositories, and fetches nothing whose hash is not known beforehand.
package fetch
