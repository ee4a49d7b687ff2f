package campaigns

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"attnbudget/cachedir"
	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/drop"
	"attnbudget/plan"
)

// calibration is a report that masks are profiles of: one for each model from the stage calibrate, or one that was given.
type calibration struct {
	plan.Calibration
	report      *calibrate.Report // nil: it has not been made
	evaluations int               // about how many it takes to make it
}

// fitted is what a mask says in place of a surrogate file to have what the stage calibrate fits for its profile.
const fitted = "fitted"

// profileNames are what a report may have; one that it lacks drops nothing.
func profileNames() []string {
	return []string{calibrate.Minimal, calibrate.Light, calibrate.Recommended, calibrate.Max}
}

// calibrateStage is the index of the stage calibrate; -1 when the campaign has none.
func (c *Campaign) calibrateStage() int {
	return slices.IndexFunc(c.Stages, func(s Stage) bool { return s.Calibrate != nil })
}

// checkMask finds contradictions in a mask that is written as a mapping.
func (c *Campaign) checkMask(m NamedMask, p path) {
	if !c.doc.clean(p) {
		return
	}
	_, listed := c.doc.values[p.key("layers")]
	switch {
	case listed && m.Profile != "":
		c.doc.wrong(p.key("layers"), "leave one of them out", "a mask has layers or a profile, not both")
	case m.Report != "" && m.Profile == "":
		c.doc.wrong(p.key("report"), choices(profileNames()), "a report has several masks: say which profile is meant")
	case m.Surrogate != "" && m.Profile == "" && len(m.Layers) == 0:
		c.doc.wrong(p.key("surrogate"), "say what it stands in for: {layers: [0, 3], surrogate: FILE}", "a surrogate needs layers or a profile")
	case m.Surrogate == fitted && (m.Profile == "" || m.Report != ""):
		c.doc.wrong(p.key("surrogate"), "name the file; one that is really called fitted is ./fitted", "only a profile of this campaign's stage calibrate has a fitted surrogate")
	case m.Profile != "" && m.Report == "" && c.calibrateStage() < 0:
		c.doc.wrong(p.key("profile"), "add the stage - calibrate: {}, or write {profile: NAME, report: FILE}",
			"the profile %q of what? This campaign has no stage calibrate", m.Profile)
	case m.Surrogate == fitted && c.Stages[c.calibrateStage()].Calibrate.Surrogate == "":
		c.doc.wrong(p.key("surrogate"), "write surrogate: linear in the stage calibrate", "the stage calibrate fits no surrogates")
	}
}

// checkCalibrate checks the stage without looking at its text.
func (c *Campaign) checkCalibrate(i int) {
	s, p := c.Stages[i].Calibrate, at("stages", i, plan.Calibrate)
	if first := c.calibrateStage(); first < i {
		c.doc.wrongKey(p, "profiles must come from one calibration", "there is a stage calibrate already, in line %d", c.doc.node(at("stages", first)).Line)
	}
	if !(s.QualityBudget > 0) {
		c.doc.wrong(p.key("quality_budget"), "", `"quality_budget" must be more than 0 nats, found %g`, s.QualityBudget)
	}
	if s.MaxDamage != 0 && s.MaxDamage < s.QualityBudget {
		c.doc.wrong(p.key("max_damage"), "", `"max_damage" must be at least the quality budget of %g nats, found %g`, s.QualityBudget, s.MaxDamage)
	}
	if s.Rank > 0 && s.Surrogate != string(calibrate.LinearSurrogate) {
		c.doc.wrong(p.key("rank"), "write surrogate: linear", "only linear surrogates have a rank")
	}
	if s.SearchWithSurrogates && s.Surrogate == "" {
		c.doc.wrong(p.key("search_with_surrogates"), "write surrogate: mean or linear", "there are no surrogates to search with")
	}
	c.checkInput(s.Text, p.key("text"), builtin.Text)
}

// resolveProfiles finds the calibrations: those of the stage in the cache, the others where the masks say.
func (c *Campaign) resolveProfiles() {
	c.calibrated, c.reports = map[string]*calibration{}, map[string]*calibration{}
	if i := c.calibrateStage(); i >= 0 && c.doc.clean(at("stages", i)) {
		c.resolveStage(i)
	}
	for _, mask := range c.Masks {
		if mask.Report == "" || c.reports[mask.Report] != nil || !c.doc.clean(at("masks", mask.Name)) {
			continue
		}
		file := c.resolvePath(mask.Report)
		cal, err := loadReport(file)
		switch p := at("masks", mask.Name, "report"); {
		case errors.Is(err, fs.ErrNotExist):
			c.doc.wrong(p, "run-campaign calibrate makes one; paths start from the folder of the campaign file", "there is no file %s", mask.Report)
		case err != nil:
			c.doc.wrong(p, "run-campaign calibrate makes one", "%s cannot be used: %s", mask.Report, c.shorten(err, mask.Report))
		default:
			cal.ID, cal.Report = cal.SHA256[:16], file
			c.reports[mask.Report] = cal
		}
	}
}

func loadReport(file string) (*calibration, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := calibrate.Parse(data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return &calibration{report: r, Calibration: plan.Calibration{SHA256: hex.EncodeToString(sum[:])}}, nil
}

// resolveStage makes the calibration of every model.
func (c *Campaign) resolveStage(i int) {
	s, p := c.Stages[i].Calibrate, at("stages", i, plan.Calibrate, "text")
	file := c.resolvePath(s.Text)
	in := c.readInput(file, p, s.Text)
	dir, err := cachedir.Path()
	if err != nil {
		c.doc.wrong(p, "", "%v", err)
	}
	if in.text == nil || err != nil {
		return
	}
	for _, m := range c.models {
		if m == nil || !c.doc.clean(at("models", m.Name)) {
			continue
		}
		key := s.key(m.Fingerprint, c.engineVersion(), in.sum)
		cal := &calibration{Calibration: plan.Calibration{
			ID: key.ID(), Report: filepath.Join(dir, "calibrations", key.ID()+".json"), Model: m.Name, Input: file, Key: &key,
		}}
		if made, err := loadReport(cal.Report); err == nil && made.report.Model.Fingerprint == m.Fingerprint && made.report.CheckSurrogates(filepath.Dir(cal.Report)) == nil {
			cal.SHA256, cal.report = made.SHA256, made.report
		}
		c.previewCalibration(m, cal, in.text, at("stages", i, plan.Calibrate))
		c.calibrated[m.Name] = cal
	}
}

// defaultRank is that of linear surrogates.
const defaultRank = 32

// key is what decides the report for a model.
func (s *Calibrate) key(fingerprint, engineVersion, text string) plan.CalibrationKey {
	k := plan.CalibrationKey{
		ModelFingerprint: fingerprint, Engine: plan.EngineEmbedded, EngineVersion: engineVersion, InputSHA256: text,
		Context: s.Context, SearchChunks: s.SearchChunks, HeldoutChunks: s.HeldoutChunks, Metric: s.Metric, Search: s.Search,
		Budget: s.QualityBudget, MaxDamage: s.MaxDamage, Steps: s.Steps, Shortlist: s.Shortlist,
		Surrogate: s.Surrogate, Rank: s.Rank, WithSurrogates: s.SearchWithSurrogates,
	}
	if k.Surrogate == string(calibrate.LinearSurrogate) && k.Rank == 0 {
		k.Rank = defaultRank
	}
	if k.MaxDamage == 0 {
		k.MaxDamage = 4 * k.Budget
	}
	return k
}

// previewCalibration notes what the calibration of a model would refuse.
func (c *Campaign) previewCalibration(m *model, cal *calibration, text []byte, p path) {
	if trained := m.engine.Info().ContextTrain; cal.Key.Context > trained {
		c.doc.wrong(p.key("context"), "", "calibrate needs a context of %d tokens; model %q was trained for %d", cal.Key.Context, m.Name, trained)
		return
	}
	tok, err := m.engine.Tokenizer()
	if err != nil {
		c.doc.wrong(at("models", m.Name), "", "the tokenizer of model %q cannot be used: %s", m.Name, c.shorten(err, m.Source))
		return
	}
	cal.evaluations, err = calibrate.Preview(tok, text, calibrate.Settings{NCtx: cal.Key.Context, Search: cal.Key.SearchChunks, Heldout: cal.Key.HeldoutChunks},
		calibrate.SurrogatePlan{Kind: calibrate.SurrogateKind(cal.Key.Surrogate), Rank: cal.Key.Rank, Search: cal.Key.WithSurrogates}, m.engine.Info().Embd, m.attending())
	if err != nil {
		c.doc.wrong(p.key("text"), "", "model %q cannot be calibrated: %v", m.Name, err)
	}
}

// calibrationOf is what a mask is a profile of in a model; nil when a mistake keeps it from being known.
func (c *Campaign) calibrationOf(m *model, mask NamedMask) *calibration {
	if mask.Report != "" {
		return c.reports[mask.Report]
	}
	return c.calibrated[m.Name]
}

// maskOf is a mask of the campaign in a model. A profile means other layers in every model.
func (c *Campaign) maskOf(m *model, mask NamedMask) plan.Mask {
	out := plan.Mask{Name: mask.Name, Layers: []int{}, Profile: mask.Profile}
	out.Fitted = mask.Surrogate == fitted
	layers := mask.Layers
	if mask.Profile != "" {
		cal := c.calibrationOf(m, mask)
		if out.Pending = cal == nil || cal.report == nil; cal != nil {
			out.Calibration = cal.ID
		}
		if !out.Pending {
			var err error
			layers, err = cal.profile(mask.Profile, m)
			out.Pending = err != nil // and never known, which checkProfiles notes
			if out.Fitted {
				out.Surrogate = cal.surrogate(mask.Profile)
			}
		}
	}
	out.Layers = append(out.Layers, layers...)
	slices.Sort(out.Layers)
	if resolved, err := drop.Resolve(m.engine.Roles(), out.Layers); err == nil && !out.Pending {
		out.Hash = resolved.Hash()
	}
	if mask.Surrogate != "" && !out.Fitted {
		out.Surrogate = c.resolvePath(mask.Surrogate)
	}
	if out.Surrogate != "" {
		if s, err := m.openSurrogates(out.Surrogate); err == nil {
			out.SurrogateHash = s.Hash()
		}
	}
	return out
}

// profile is what the report says for the model; a profile that it lacks, because nothing fits its budget, drops nothing.
func (cal *calibration) profile(name string, m *model) ([]int, error) {
	if cal.lacks(name) && cal.report.Model.Fingerprint == m.Fingerprint {
		return nil, nil
	}
	mask, err := cal.report.Profile(filepath.Base(cal.Report), name, m.Fingerprint, m.engine.Roles())
	return mask.Layers(), err
}

// surrogate is the file of what was fitted for a profile, empty when there is none because it would do harm.
func (cal *calibration) surrogate(name string) string {
	for _, p := range cal.report.Profiles {
		if file := p.SurrogateFile(); p.Name == name && file != "" {
			return filepath.Join(filepath.Dir(cal.Report), file)
		}
	}
	return ""
}

func (cal *calibration) lacks(name string) bool {
	return cal.report != nil && !slices.ContainsFunc(cal.report.Profiles, func(p calibrate.Profile) bool { return p.Name == name })
}

// checkProfiles checks the profiles of arms, which must be all there are: one that drops nothing is about to become one with
// another.
func (c *Campaign) checkProfiles(arms []plan.Arm) {
	checked := map[[2]string]bool{}
	for _, a := range arms {
		if pair := [2]string{a.Model, a.Mask.Name}; a.Mask.Profile != "" && !checked[pair] {
			checked[pair] = true
			c.checkProfile(c.model(a.Model), c.mask(a.Mask.Name))
		}
	}
}

// checkProfile notes a profile that is not for the model it is combined with, and warns of one that drops nothing.
func (c *Campaign) checkProfile(m *model, mask NamedMask) {
	cal := c.calibrationOf(m, mask)
	if cal == nil || cal.report == nil {
		return
	}
	p := at("masks", mask.Name).key("report")
	var other *calibrate.WrongModelError
	switch _, err := cal.profile(mask.Profile, m); {
	case errors.As(err, &other):
		c.doc.wrong(p, "run-campaign calibrate for this model, or leave the combination out with matrix: {exclude: [...]}",
			"mask %q cannot be used with model %q: %s was measured on another model, with the fingerprint %s; this one's is %s", mask.Name, m.Name, mask.Report, other.Found, other.Expected)
		return
	case err != nil:
		c.doc.wrong(p, "", "mask %q cannot be used with model %q: %s", mask.Name, m.Name, c.shorten(err, mask.Report))
		return
	}
	switch {
	case cal.lacks(mask.Profile):
		c.warn("mask %q drops nothing in model %q: even the safest drop does not fit what the profile %s of its calibration allows", mask.Name, m.Name, mask.Profile)
	case mask.Surrogate == fitted && cal.surrogate(mask.Profile) == "":
		c.warn("mask %q has no surrogate in model %q: what was fitted does harm on text that it was not fitted to", mask.Name, m.Name)
	case mask.Surrogate == "" && cal.report.Surrogate.Search:
		c.warn("mask %q has no surrogate in model %q, but the layers that it drops were chosen with surrogates in place", mask.Name, m.Name)
	}
}

// checkSurrogate notes a surrogate file that does not belong to the mask and model of an arm.
func (c *Campaign) checkSurrogate(m *model, a plan.Arm) {
	if a.Mask.Surrogate == "" || a.Mask.Pending {
		return
	}
	source, p := c.mask(a.Mask.Name).Surrogate, at("masks", a.Mask.Name, "surrogate")
	s, err := m.openSurrogates(a.Mask.Surrogate)
	var other *engine.SurrogateError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.doc.wrong(p, "run-campaign calibrate --surrogate linear makes one", "there is no file %s", source)
	case errors.As(err, &other):
		c.doc.wrong(p, "", "%s was fitted for another %s: %s; model %q with mask %q has %s", source, other.What, other.Found, m.Name, a.Mask.Name, other.Expected)
	case err != nil:
		c.doc.wrong(p, "", "%s cannot be used: %s", source, c.shorten(err, source))
	case s.Mask().Canonical() != a.Mask.Drops():
		c.doc.wrong(p, "", "%s stands in for the layers %s; mask %q drops %s in model %q", source, s.Mask(), a.Mask.Name, a.Mask.Drops(), m.Name)
	}
}

// calibrationsOf are those that the arms, before equal ones become one, get their masks from; and where no mask asks for the
// stage, all of the stage.
func (c *Campaign) calibrationsOf(arms []plan.Arm) []plan.Calibration {
	var out []plan.Calibration
	add := func(cal *calibration, mask string) {
		if cal == nil { // a mistake keeps it from being known
			return
		}
		i := slices.IndexFunc(out, func(o plan.Calibration) bool { return o.ID == cal.ID })
		if i < 0 {
			i = len(out)
			out = append(out, cal.Calibration)
			out[i].Masks = []string{}
		}
		if mask != "" && !slices.Contains(out[i].Masks, mask) {
			out[i].Masks = append(out[i].Masks, mask)
		}
	}
	staged := false
	for _, mask := range c.Masks {
		staged = staged || mask.Profile != "" && mask.Report == ""
		for _, m := range c.models {
			used := slices.ContainsFunc(arms, func(a plan.Arm) bool { return a.Model == m.Name && a.Mask.Name == mask.Name })
			if mask.Profile != "" && used {
				add(c.calibrationOf(m, mask), mask.Name)
			}
		}
	}
	for _, m := range c.models {
		if cal := c.calibrated[m.Name]; cal != nil && !staged {
			add(cal, "")
		}
	}
	return out
}
