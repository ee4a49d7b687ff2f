// Package campaigns reads a campaign, the YAML file that declares an experiment, and expands it into a plan.
//
// The way of a file: parse (text to YAML nodes, bounded), decode (nodes to a Spec, strict, every value with its place),
// check (names, numbers, references), resolve (models, texts and task files are opened and looked into), Plan (pure
// expansion into arms, blocks and units). Everything that is wrong is reported before anything runs, all at once, as
// Mistakes with file, line, column, the source line and a way out.
//
// The package executes nothing, writes nothing but the text it renders, and knows no runner and no results: durations
// that were measured are handed to Estimate by whoever has read them.
package campaigns
