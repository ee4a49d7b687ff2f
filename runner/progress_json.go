package runner

import (
	"encoding/json"
	"io"
)

// NewJSON reports every event as one line of JSON, see docs/format/journal.md.
func NewJSON(w io.Writer) Reporter { return jsonLines{json.NewEncoder(w)} }

type jsonLines struct{ enc *json.Encoder }

// Report ignores errors of the writer: a closed pipe is no reason to end a measurement.
func (j jsonLines) Report(e Event) { _ = j.enc.Encode(e) }

func (j jsonLines) Close() {}
