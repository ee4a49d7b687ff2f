package plan

// Calibrate is the kind of the stage that calibrates models. It has no units: it is what masks are known by.
const Calibrate = "calibrate"

// Calibration is a report that masks of the plan are profiles of.
type Calibration struct {
	ID     string          `json:"id"`               // Key.ID(); of a report that was given, the first 16 digits of SHA256
	Report string          `json:"report"`           // absolute path
	SHA256 string          `json:"sha256,omitempty"` // of the report's bytes; empty = it has not been made yet
	Masks  []string        `json:"masks"`            // names of the masks that are profiles of it
	Model  string          `json:"model,omitempty"`  // Model.Name; empty when the report was given
	Input  string          `json:"input,omitempty"`  // text: a path or builtin:NAME
	Key    *CalibrationKey `json:"key,omitempty"`    // of one that the campaign asks for; nil when the report was given
}

// CalibrationKey is everything that decides the content of a report.
type CalibrationKey struct {
	ModelFingerprint string  `json:"model_fingerprint"`
	Engine           string  `json:"engine"`
	EngineVersion    string  `json:"engine_version"`
	InputSHA256      string  `json:"input_sha256"`
	Context          int     `json:"context"`
	SearchChunks     int     `json:"search_chunks"`
	HeldoutChunks    int     `json:"heldout_chunks"`
	Metric           string  `json:"metric"`
	Search           string  `json:"search"`
	Budget           float64 `json:"quality_budget"`                   // nats
	MaxDamage        float64 `json:"max_damage"`                       // nats
	Steps            int     `json:"steps"`                            // 0 = no limit
	Shortlist        int     `json:"shortlist"`                        // 0 = no limit
	Surrogate        string  `json:"surrogate,omitempty"`              // kind of those that are fitted: mean or linear; empty = none
	Rank             int     `json:"rank,omitempty"`                   // of linear ones
	WithSurrogates   bool    `json:"search_with_surrogates,omitempty"` // masks are searched and measured with them in place
}

// ID is the first 16 hexadecimal digits of the SHA-256 of the key's JSON form.
func (k CalibrationKey) ID() string { return digest(k) }

// Pending are the calibrations that have to be made before the plan can be executed: what their masks drop is not known yet.
func (p *Plan) Pending() []Calibration {
	var out []Calibration
	for _, c := range p.Calibrations {
		if c.SHA256 == "" {
			out = append(out, c)
		}
	}
	return out
}
