// Package calibrate finds out, by measuring, which attention layers of a model can be dropped.
//
// Run cuts a text into chunks as the perplexity evaluator does, scores masks by what they add to the negative
// log-likelihood and by the divergence from the undropped model, searches for the least harmful mask of every size on one
// part of the chunks, and reports what the chosen masks do on the other part, which influenced none of these choices. Greedy,
// Beam and Evolve are the searches: pure functions of the roles of a model and of a Measure. FitSurrogates fits what may stand in for a
// dropped branch.
//
// A Report is bound to the fingerprint of its model and is refused for any other. The package changes no model and decides
// nothing for a campaign: it names masks and says what they cost.
package calibrate
