package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Key is everything that decides the result of a unit. Two units with equal keys are the same unit, whatever they are
// called; a field that differs is the reason why a unit runs again.
type Key struct {
	ModelFingerprint string `json:"model_fingerprint"` // of the source GGUF, before any quantisation by us
	Format           string `json:"format"`
	Mask             string `json:"mask"` // Mask.Drops: "0,3"; empty = nothing dropped
	TypeK            string `json:"type_k"`
	TypeV            string `json:"type_v"`
	Engine           string `json:"engine"`         // "embedded"
	EngineVersion    string `json:"engine_version"` // engine.Version, which also covers the quantiser and the evaluators
	Threads          int    `json:"threads"`
	Stage            string `json:"stage"`
	Prompt           int    `json:"prompt"`
	Generate         int    `json:"generate"`
	Depth            int    `json:"depth"`
	Context          int    `json:"context"`
	Batch            int    `json:"n_batch"`
	UBatch           int    `json:"n_ubatch"`
	InputSHA256      string `json:"input_sha256"`
	Chunks           int    `json:"chunks"`
	Tasks            int    `json:"tasks"`
	Trace            string `json:"trace"`                   // what the tokens are drawn from: "seed 1 block 2 pp512"; empty when the input decides them
	Block            int    `json:"block"`                   // repetition
	Control          bool   `json:"control"`                 // the second baseline of `control: aa`
	Base             string `json:"base,omitempty"`          // kl-divergence: the setting it is compared with, see Arm.Setting
	Surrogate        string `json:"surrogate,omitempty"`     // hash of what stands in for dropped attention
	LogitsFormat     string `json:"logits_format,omitempty"` // Condition.LogitsFormat
}

// ID is the first 16 hexadecimal digits of the SHA-256 of the key's JSON form.
func (k Key) ID() string { return digest(k) }

// StateKey is everything that decides the content of a state. Only the fields of its kind are set.
type StateKey struct {
	Kind             string `json:"kind"` // one of the kinds of states
	ModelFingerprint string `json:"model_fingerprint"`
	Format           string `json:"format"`
	Mask             string `json:"mask"`
	Surrogate        string `json:"surrogate,omitempty"`
	TypeK            string `json:"type_k"`
	TypeV            string `json:"type_v"`
	Engine           string `json:"engine"`
	EngineVersion    string `json:"engine_version"`
	Depth            int    `json:"depth,omitempty"`
	Batch            int    `json:"n_batch"`
	UBatch           int    `json:"n_ubatch"`
	Trace            string `json:"trace,omitempty"` // what the tokens of a cache are drawn from: "seed 1 depth 1024"
	InputSHA256      string `json:"input_sha256,omitempty"`
	Context          int    `json:"context,omitempty"`
	Chunks           int    `json:"chunks,omitempty"`
	LogitsFormat     string `json:"logits_format,omitempty"`
}

// ID is the first 16 hexadecimal digits of the SHA-256 of the key's JSON form.
func (k StateKey) ID() string { return digest(k) }

func digest(key any) string {
	b, err := json.Marshal(key)
	if err != nil {
		panic("plan: a key is always marshalable: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Setting is what an arm does to a model, as Key.Base has it: "F16, layers 0,3 dropped, kv q8_0/f16".
func (a Arm) Setting() string {
	mask := "nothing"
	if dropped := a.Mask.Drops(); dropped != "" {
		mask = "layers " + dropped
	}
	if a.Mask.SurrogateHash != "" {
		mask += " (surrogate " + a.Mask.SurrogateHash + ")"
	}
	return a.Format + ", " + mask + " dropped, kv " + a.KV()
}

// Drops is what the mask drops, as Key.Mask has it: the layers in canonical form, or of a profile that is not known yet which
// one is meant, so that its units are taken for no others.
func (m Mask) Drops() string {
	switch {
	case m.Pending && m.Fitted:
		return m.Profile + " of calibration " + m.Calibration + " with its surrogate"
	case m.Pending:
		return m.Profile + " of calibration " + m.Calibration
	}
	return CanonicalMask(m.Layers)
}

// Same reports whether masks are one: by name, because a profile drops other layers in every model, or by what they do.
func (m Mask) Same(o Mask) bool {
	return m.Name == o.Name || m.Drops() == o.Drops() && m.SurrogateHash == o.SurrogateHash
}

// Difference is one field in which two keys differ.
type Difference struct {
	Field    string `json:"field"`
	Old, New string
}

// Diff lists the fields in which old and k differ, in declaration order, by their JSON names.
func (k Key) Diff(old Key) []Difference {
	var out []Difference
	a, b := reflect.ValueOf(old), reflect.ValueOf(k)
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); x != y {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, Difference{name, fmt.Sprint(x), fmt.Sprint(y)})
		}
	}
	return out
}

// CanonicalMask is the canonical form of a mask in a Key: ascending layer numbers joined by commas.
func CanonicalMask(layers []int) string {
	s := make([]string, len(layers))
	for i, l := range layers {
		s[i] = fmt.Sprint(l)
	}
	return strings.Join(s, ",")
}
