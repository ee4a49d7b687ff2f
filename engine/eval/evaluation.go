package eval

import (
	"context"
	"io"

	"attnbudget/engine"
)

// Evaluation is what the evaluators have in common. An Item is one finished chunk or task.
type Evaluation[Item any] interface {
	ContextOptions(base engine.ContextOptions) engine.ContextOptions
	Run(ctx context.Context, c Context, done []Item, each func(Item) error) ([]Item, error)
	Write(w io.Writer, items []Item) error
	Doubts(items []Item) []string
}
