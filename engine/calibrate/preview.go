package calibrate

import "attnbudget/engine/tokenizer"

// usualSteps is how many steps a search is taken to have before anything is known of its model.
const usualSteps = 3

// Preview finds what Run would refuse in a text and settings, without a model, and says about how many evaluations, one mask
// on one chunk, Run takes for a model with so many layers that can be dropped.
func Preview(tok *tokenizer.Tokenizer, text []byte, s Settings, units int) (evaluations int, err error) {
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
	return units*len(c.search) + c.later(units, usualSteps), nil
}
