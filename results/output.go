package results

import (
	"encoding/json"
	"unicode/utf8"
)

// output is what a process printed, byte for byte. In JSON it is a string; only output that is not valid UTF-8, which a
// JSON string cannot hold unchanged, becomes {"base64": "..."}.
type output string

type base64Output struct {
	Base64 []byte `json:"base64"`
}

func (o output) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(o)) {
		return json.Marshal(string(o))
	}
	return json.Marshal(base64Output{[]byte(o)})
}

func (o *output) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var v base64Output
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		*o = output(v.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(o))
}

// plainRecord is a Record without its methods.
type plainRecord Record

// recordJSON is the JSON form of a Record. Its own fields take the place of the embedded ones of the same name.
type recordJSON struct {
	plainRecord
	Stdout output `json:"stdout"`
	Stderr output `json:"stderr"`
}

// MarshalJSON writes the outputs so that every byte comes back, see docs/format/record.md.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON{plainRecord(r), output(r.Stdout), output(r.Stderr)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Record) UnmarshalJSON(b []byte) error {
	var v recordJSON
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*r = Record(v.plainRecord)
	r.Stdout, r.Stderr = string(v.Stdout), string(v.Stderr)
	return nil
}
