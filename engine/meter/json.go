package meter

import (
	"bytes"
	"encoding/json"
)

// MarshalJSON writes an object with a field for each kind, in their order.
func (w Work) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for k, c := range w {
		if k > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		b.WriteString(`"` + Kind(k).String() + `":`)
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
