package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"attnbudget/engine"
	"attnbudget/engine/eval"
	"attnbudget/engine/source"
	"attnbudget/engine/tokenizer"
	"attnbudget/plan"
)

// tokenizedInput is a text or task file with the tokenizer for it.
type tokenizedInput struct {
	eval.Input
	tokenizer *tokenizer.Tokenizer
}

func (c *child) input(m *engine.Model) (tokenizedInput, error) {
	data, err := readInput(c.job.Condition)
	if err != nil {
		return tokenizedInput{}, err
	}
	tok, err := m.Tokenizer()
	return tokenizedInput{eval.Input{Name: c.job.Condition.Input, Data: data}, tok}, err
}

// readInput returns the text or task file of a condition and makes sure that it is the one the plan was made with.
func readInput(c plan.Condition) ([]byte, error) {
	data, err := source.Read(c.Input)
	if err != nil {
		return nil, &UnavailableError{fmt.Errorf("input of %q: %w", c.Name, err)}
	}
	digest := sha256.Sum256(data)
	if sum := hex.EncodeToString(digest[:]); sum != c.SHA256 {
		return nil, &UnavailableError{fmt.Errorf("input of %q: %s has changed since the plan was made: its SHA-256 was %s and is %s; load the campaign again", c.Name, c.Input, c.SHA256, sum)}
	}
	return data, nil
}
