package runner

import (
	"errors"

	"attnbudget/parsers"
	"attnbudget/results"
)

// validate decides whether an output is a result: it must be readable and all its numbers finite. nil = it is.
func validate(stage string, stdout []byte) *results.Failure {
	_, err := parsers.Decode(stage, stdout)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, parsers.ErrNaN):
		return &results.Failure{Kind: results.NaN, Message: err.Error()}
	}
	return &results.Failure{Kind: results.Unparsable, Message: err.Error()}
}
