package calibrate

import (
	"slices"

	"attnbudget/engine"
	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
)

// report begins a report with what is known before anything is measured.
func (c *calibration) report() *Report {
	i := c.Model.Info()
	return &Report{
		Schema: Schema, Engine: engine.ResultVersion(kernel.Name()),
		Model: ModelSummary{Name: i.Name, Arch: i.Arch, FileType: i.FileType, Layers: i.Layers, Fingerprint: c.Fingerprint},
		Text: TextSummary{
			Name: c.TextName, SHA256: c.corpus.sha256, Tokens: c.corpus.tokens, BOS: c.corpus.bos,
			NCtx: c.Settings.NCtx, Scored: len(c.corpus.outputs), Search: c.search, Heldout: c.heldout,
		},
		Settings: c.Settings, Surrogate: c.Surrogate, Profiles: []Profile{}, Cautions: []string{},
	}
}

// units is phase A for the report.
func (c *calibration) units(alone []Contender, shortlist []int) []UnitResult {
	out := make([]UnitResult, len(alone))
	for i, a := range alone {
		layers := a.Mask.Layers()
		out[i] = UnitResult{
			Layers: layers, Role: c.Model.Roles()[layers[0]].Describe(layers[0]), Search: damage(a.Scores),
			Ties: []string{}, Shortlisted: slices.Contains(shortlist, layers[0]),
		}
		for k, b := range alone {
			if k != i && c.searcher.worse(a, b).tied() {
				out[i].Ties = append(out[i].Ties, b.Mask.Canonical())
			}
		}
	}
	return out
}

// steps is phase B for the report.
func (c *calibration) steps(steps []Step, heldout map[drop.Mask][]Score) []StepResult {
	out := make([]StepResult, len(steps))
	before := drop.Mask{}
	for i, s := range steps {
		out[i] = StepResult{
			Mask: s.Mask.Canonical(), Layers: s.Mask.Layers(), Added: difference(s.Mask, before), Removed: difference(before, s.Mask),
			Search: damage(s.Scores), Heldout: damage(heldout[s.Mask]), Ties: names(s.Ties), Candidates: candidates(s.Field),
		}
		out[i].Increment = out[i].Heldout.NLL
		if i > 0 {
			out[i].Increment = paired(NLL.all(heldout[s.Mask]), NLL.all(heldout[before]))
		}
		out[i].Cautions = cautions(out, i)
		before = s.Mask
	}
	return out
}

func candidates(field []Contender) []CandidateResult {
	out := make([]CandidateResult, len(field))
	for i, f := range field {
		out[i] = CandidateResult{Mask: f.Mask.Canonical(), Damage: damage(f.Scores), Out: f.Out}
	}
	return out
}
