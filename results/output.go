package results

import (
	"encoding/json"
	"unicode/utf8"
)

// Output is what a process printed, byte for byte. In JSON it is a string; only output that is not valid UTF-8, which a
// JSON string cannot hold unchanged, becomes {"base64": "..."}.
type Output string

type base64Output struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (o Output) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(o)) {
		return json.Marshal(string(o))
	}
	return json.Marshal(base64Output{[]byte(o)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Output) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var v base64Output
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		*o = Output(v.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(o))
}
