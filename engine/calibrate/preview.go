package calibrate

import "attnbudget/engine/tokenizer"

// usualSteps is how many steps a search is taken to have before anything is known of its model.
const usualSteps = 3

// Preview finds what Run would refuse in a text and settings, without a model, and says about how many evaluations, one mask
// on one chunk, Run takes for a model of that width with so many layers that can be dropped. Fitting surrogates counts as running
// the text that they are fitted on.
func Preview(tok *tokenizer.Tokenizer, text []byte, s Settings, p SurrogatePlan, embd, units int) (evaluations int, err error) {
	s = s.defaults()
	if err := s.check(); err != nil {
		return 0, err
	}
	corpus, err := cut(tok, text, s.NCtx)
	if err != nil {
		return 0, err
	}
	c := calibration{}
	if c.search, c.heldout, err = corpus.split(s.Search, s.Heldout); err != nil {
		return 0, err
	}
	evaluations = units*len(c.search) + c.later(units, usualSteps)
	if p.Kind == NoSurrogate {
		return evaluations, nil
	}
	fit := min(fitChunks(len(c.search), embd, s.NCtx), len(corpus.chunks)/2)
	if p.Search {
		evaluations += fit
	}
	return evaluations + usualSteps*(usualSteps*fit+2*len(c.heldout)), nil
}
