package campaigns

import (
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"attnbudget/plan"
)

// Spec is a campaign as it is written. The jsonschema tags are rules for editors and for the decoder alike.
type Spec struct {
	// Name of the campaign, also of its results directory.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$"`
	// Models under test: names and where their GGUF files are.
	Models Models `yaml:"models" jsonschema:"required"`
	// Weight formats to compare. A model in F32, F16 or BF16 is quantised to each; default: the format of the model's own file.
	Formats []string `yaml:"formats" jsonschema:"minItems=1,uniqueItems=true"`
	// Attention drop masks: names and the layers whose attention is dropped, or a profile of a calibration; default: none, which drops nothing.
	Masks Masks `yaml:"masks"`
	// KV cache types to compare; default: f16 for keys and values.
	KVTypes []KVType `yaml:"kv_types" jsonschema:"minItems=1"`
	// The arm that effects are measured against. Parts left out: the first model, format and KV type, and the mask that drops nothing.
	Baseline Selection `yaml:"baseline"`
	// Which combinations of models, formats, masks and KV types become arms; default: all.
	Matrix Matrix `yaml:"matrix"`
	// aa runs a second arm identical to the baseline: its effect is the noise floor.
	Control string `yaml:"control" jsonschema:"enum=aa"`
	// How the plan is executed.
	Run Run `yaml:"run"`
	// The kinds of work, in order.
	Stages []Stage `yaml:"stages" jsonschema:"required,minItems=1"`
	// Published tables; default: speed, KV memory and quality, as far as there are stages for them.
	Tables []Table `yaml:"tables" jsonschema:"minItems=1"`
}

// Models is the ordered list of named models.
type Models []NamedModel

// NamedModel is a model with its name in the campaign.
type NamedModel struct {
	Name   string
	Source Source
}

// Source says where a model is: a path (relative to the campaign file), builtin:NAME, hf:OWNER/REPO/FILE or synth:SHAPE, with the SHA-256 that it must have, if any.
type Source struct {
	// A path relative to the campaign file, builtin:NAME, hf:OWNER/REPO/FILE, or synth:SHAPE with options such as :layers=4.
	Path string `yaml:"path" jsonschema:"required"`
	// The SHA-256 that the file must have, 64 hexadecimal digits; hf: needs it.
	SHA256 Digits `yaml:"sha256" jsonschema:"pattern=^[0-9a-f]{64}$"`
}

// Digits are hexadecimal digits; those that happen to look like a number need no quotes.
type Digits string

// Masks is the ordered list of named masks.
type Masks []NamedMask

// NamedMask is a mask with its name in the campaign.
type NamedMask struct {
	Name string
	Mask
}

// Mask says whose attention is dropped: a list of layers, or a profile of a calibration.
type Mask struct {
	// Layers whose attention is dropped, from 0.
	Layers []int `yaml:"layers" jsonschema:"minimum=0,uniqueItems=true"`
	// A profile of a calibration, instead of layers.
	Profile string `yaml:"profile" jsonschema:"enum=minimal,enum=light,enum=recommended,enum=max"`
	// The report that the profile is in, relative to the campaign file; default: what the stage calibrate finds out.
	Report string `yaml:"report"`
	// What stands in for the dropped attention: fitted, for what the stage calibrate fits for the profile, or a file, relative to the campaign file, that calibrate --surrogate made.
	Surrogate string `yaml:"surrogate"`
}

// KVType is the pair of types of a KV cache: a name for both, or k and v apart.
type KVType struct {
	// Type of the key cache.
	K string `yaml:"k" jsonschema:"required"`
	// Type of the value cache.
	V string `yaml:"v" jsonschema:"required"`
}

// String is the pair as plan.KVName writes it.
func (t KVType) String() string { return plan.KVName(t.K, t.V) }

// Selection names one arm; parts may be left out.
type Selection struct {
	// A name from models.
	Model string `yaml:"model"`
	// One of the formats.
	Format string `yaml:"format"`
	// A name from masks.
	Mask string `yaml:"mask"`
	// One of the KV types.
	KV KVType `yaml:"kv"`
}

// Matrix says which combinations become arms. The order of the steps: zip, only, exclude, include.
type Matrix struct {
	// Groups of dimensions whose lists are walked together instead of being multiplied; they must be equally long.
	Zip [][]string `yaml:"zip"`
	// Combinations to keep: those that match at least one entry.
	Only []Filter `yaml:"only" jsonschema:"minItems=1"`
	// Combinations to leave out: those that match any entry.
	Exclude []Filter `yaml:"exclude" jsonschema:"minItems=1"`
	// Arms to add; parts left out are the baseline's.
	Include []Filter `yaml:"include" jsonschema:"minItems=1"`
}

// Filter matches arms whose every given part is one of the values.
type Filter struct {
	// Names from models.
	Model Choice `yaml:"model"`
	// Weight formats.
	Format Choice `yaml:"format"`
	// Names from masks.
	Mask Choice `yaml:"mask"`
	// KV types: f16, or q8_0/f16 (K first).
	KV Choice `yaml:"kv"`
}

// Choice is one value or a list of values.
type Choice []string

// Run says how the plan is executed.
type Run struct {
	// Threads of each unit; default: the physical cores of the machine.
	Threads int `yaml:"threads" jsonschema:"minimum=1,maximum=1024"`
	// What the embedded engine computes with: auto, the fastest here, or upstream, whose results are those of llama.cpp's build
	// for AVX2 to the last digit, and slower. Default: what the command says.
	Kernels string `yaml:"kernels" jsonschema:"enum=auto,enum=upstream"`
	// Blocks of the speed stages; 6 is the fewest that a signed-rank interval at 95% can be had from.
	Repetitions int `yaml:"repetitions" jsonschema:"minimum=1,maximum=1000,default=6"`
	// Order of the arms inside a block; default: abba for two arms, random for more.
	Order string `yaml:"order" jsonschema:"enum=abba,enum=random,enum=sequential"`
	// Seed of the random order and of the tokens.
	Seed uint64 `yaml:"seed" jsonschema:"default=1"`
	// How long a unit may take before it is ended as failed: 90s, 30m, 2h.
	Timeout string `yaml:"timeout"`
	// When to stop: no block is begun that is not expected to end by then. A time of day such as 07:00, or 2026-01-31T07:00:00+01:00.
	Until string `yaml:"until"`
}

// Stage is one kind of work: a mapping with exactly one key.
type Stage struct {
	// Finds out which layers of each model can be dropped, before anything else runs; masks name its profiles.
	Calibrate *Calibrate `yaml:"calibrate"`
	// Speed with an empty cache.
	Throughput *Throughput `yaml:"throughput"`
	// Speed with a cache already filled to some depth.
	Depth *Depth `yaml:"depth"`
	// Memory of the KV cache.
	KV *KV `yaml:"kv"`
	// Perplexity of a text.
	Perplexity *Perplexity `yaml:"perplexity"`
	// Four-way completion tasks in HellaSwag's text format.
	HellaSwag *Tasks `yaml:"hellaswag"`
	// Two-way completion tasks in Winogrande's csv format.
	Winogrande *Tasks `yaml:"winogrande"`
	// Questions with several answers (ARC, MMLU) in upstream's binary format or as JSON lines.
	MultipleChoice *Tasks `yaml:"multiple-choice"`
	// Kullback-Leibler divergence of every arm from the model's arm with the baseline's format, mask and KV type.
	KLDivergence *Divergence `yaml:"kl-divergence"`
}

// Calibrate measures what dropping layers does to the predictions of each model, and names masks as profiles.
type Calibrate struct {
	// A text file relative to the campaign file, or builtin:NAME; it should not be the text of another stage.
	Text string `yaml:"text" jsonschema:"default=builtin:calibration"`
	// Tokens of a chunk; its second half is scored.
	Context int `yaml:"context" jsonschema:"minimum=8,maximum=16777216,default=512"`
	// What the recommended mask may add to the negative log-likelihood, nats a token.
	QualityBudget float64 `yaml:"quality_budget" jsonschema:"default=0.05"`
	// Where the search ends, in the same unit; default: four times the budget.
	MaxDamage float64 `yaml:"max_damage"`
	// What the search minimises: the divergence from the undropped model, or the negative log-likelihood.
	Metric string `yaml:"metric" jsonschema:"enum=kl,enum=nll,default=kl"`
	// How masks are searched.
	Search string `yaml:"search" jsonschema:"enum=greedy,enum=beam,enum=evolve,default=greedy"`
	// At most so many chunks to search on.
	SearchChunks int `yaml:"search_chunks" jsonschema:"minimum=8,maximum=16777216,default=32"`
	// At most so many other chunks to check the result on.
	HeldoutChunks int `yaml:"heldout_chunks" jsonschema:"minimum=8,maximum=16777216,default=64"`
	// At most so many steps of the search; default: no limit.
	Steps int `yaml:"steps" jsonschema:"minimum=1,maximum=16777216"`
	// At most so many layers that are tried in company; default: all that alone stay inside max_damage.
	Shortlist int `yaml:"shortlist" jsonschema:"minimum=1,maximum=16777216"`
	// Fit what stands in for the attention that a profile drops: its mean output, or a linear function of its input; default: nothing.
	Surrogate string `yaml:"surrogate" jsonschema:"enum=mean,enum=linear"`
	// Rank of linear surrogates; default: 32.
	Rank int `yaml:"rank" jsonschema:"minimum=1,maximum=16777216"`
	// Search and measure masks with surrogates in place.
	SearchWithSurrogates bool `yaml:"search_with_surrogates"`
}

// Throughput measures speed with an empty cache; at least one of prompt and generate is needed.
type Throughput struct {
	// Prompt lengths in tokens, one condition each.
	Prompt []int `yaml:"prompt" jsonschema:"minItems=1,minimum=1,maximum=16777216,uniqueItems=true"`
	// Numbers of generated tokens, one condition each.
	Generate []int `yaml:"generate" jsonschema:"minItems=1,minimum=1,maximum=16777216,uniqueItems=true"`
}

// Depth measures speed with a filled cache; at least one of prompt and generate is needed.
type Depth struct {
	// Tokens already in the cache.
	Depths []int `yaml:"depths" jsonschema:"required,minItems=1,minimum=0,maximum=16777216,uniqueItems=true"`
	// Generated tokens at each depth.
	Generate int `yaml:"generate" jsonschema:"minimum=1,maximum=16777216"`
	// Prompt tokens at each depth.
	Prompt int `yaml:"prompt" jsonschema:"minimum=1,maximum=16777216"`
}

// KV measures the memory of the KV cache.
type KV struct {
	// Context lengths in tokens, one condition each.
	Contexts []int `yaml:"contexts" jsonschema:"required,minItems=1,minimum=1,maximum=16777216,uniqueItems=true"`
}

// Perplexity reads a text.
type Perplexity struct {
	// A text file relative to the campaign file, or builtin:NAME.
	Text string `yaml:"text" jsonschema:"required"`
	// Tokens of a chunk; its second half is scored.
	Context int `yaml:"context" jsonschema:"minimum=8,maximum=16777216,default=512"`
	// At most so many chunks; default: all.
	Chunks int `yaml:"chunks" jsonschema:"minimum=1,maximum=16777216"`
}

// Divergence reads a text beside the base.
type Divergence struct {
	Perplexity
	// How the base's log-probabilities are kept: upstream, in 16 bits, as llama-perplexity does; or float32, exact, in twice the space.
	LogitsFormat string `yaml:"logits_format" jsonschema:"enum=upstream,enum=float32,default=upstream"`
}

// Tasks scores tasks with several answers.
type Tasks struct {
	// A task file relative to the campaign file, or builtin:NAME.
	Tasks string `yaml:"tasks" jsonschema:"required"`
	// At most so many tasks, chosen as upstream does; default: all.
	Limit int `yaml:"limit" jsonschema:"minimum=1,maximum=16777216"`
	// Context in tokens that every task must fit.
	Context int `yaml:"context" jsonschema:"minimum=8,maximum=16777216,default=512"`
}

// Table describes a published table.
type Table struct {
	// Heading.
	Title string `yaml:"title" jsonschema:"required"`
	// Dimensions whose values make the rows.
	Rows []string `yaml:"rows" jsonschema:"required,minItems=1,uniqueItems=true"`
	// Dimensions whose values make the columns.
	Columns []string `yaml:"columns" jsonschema:"uniqueItems=true"`
	// The metric shown, or a list of metrics; several need the dimension metric in rows or columns.
	Cells Choice `yaml:"cells" jsonschema:"required"`
	// Show the effect against another arm beside the level; auto: as a difference for accuracies and nll, else as a ratio.
	Effect string `yaml:"effect" jsonschema:"enum=ratio,enum=difference,enum=auto"`
	// What effects compare with: dimensions and their values; default: the baseline's value of every column dimension.
	Against map[string]string `yaml:"against"`
	// What cells must have: dimensions and their values.
	Where map[string]string `yaml:"where"`
}

func (m *Models) decodeNode(d *document, n *yaml.Node, p path) {
	if !d.isMapping(n, p) {
		return
	}
	if len(n.Content) == 0 {
		d.wrong(p, "", "%s must not be empty", label(p))
	}
	d.eachKey(n, p, func(key, value *yaml.Node, at path) {
		d.checkName(key, "model")
		named := NamedModel{Name: key.Value}
		d.decode(value, reflect.ValueOf(&named.Source).Elem(), at, rules{})
		*m = append(*m, named)
	})
}

func (s *Source) decodeNode(d *document, n *yaml.Node, p path) {
	switch {
	case n.Kind == yaml.MappingNode:
		d.decodeStruct(n, reflect.ValueOf(s).Elem(), p)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		d.decode(n, reflect.ValueOf(&s.Path).Elem(), p, rules{})
	default:
		d.note(n, "write a path, builtin:NAME, or {path: FILE, sha256: DIGITS}", "%s must be a file, found %s", label(p), describe(n))
	}
}

func (h *Digits) decodeNode(d *document, n *yaml.Node, p path) {
	if n.Kind != yaml.ScalarNode || !sha256Digits.MatchString(n.Value) {
		d.note(n, "sha256sum FILE prints it", "%s must be 64 lower-case hexadecimal digits, found %s", label(p), describe(n))
		return
	}
	*h = Digits(n.Value)
}

func (m *Masks) decodeNode(d *document, n *yaml.Node, p path) {
	if !d.isMapping(n, p) {
		return
	}
	if len(n.Content) == 0 {
		d.wrong(p, "leave the key out for the one mask that drops nothing", "%s must not be empty", label(p))
	}
	d.eachKey(n, p, func(key, value *yaml.Node, at path) {
		d.checkName(key, "mask")
		named := NamedMask{Name: key.Value}
		d.values[at] = value
		switch {
		case value.Kind == yaml.ScalarNode && value.Tag == "!!str":
			d.note(value, "write [0, 3] or {profile: recommended}", "%s must be a list of layers or a profile, found %s", label(at), describe(value))
		case value.Kind == yaml.MappingNode:
			d.decodeStruct(value, reflect.ValueOf(&named.Mask).Elem(), at)
			if len(value.Content) == 0 {
				d.note(value, "for a mask that drops nothing, write []", "%s must not be empty", label(at))
			}
		default:
			d.decode(value, reflect.ValueOf(&named.Layers).Elem(), at, rules{unique: true})
		}
		*m = append(*m, named)
	})
}

func (t *KVType) decodeNode(d *document, n *yaml.Node, p path) {
	if n.Kind == yaml.MappingNode {
		d.decodeStruct(n, reflect.ValueOf(t).Elem(), p)
		return
	}
	if d.is(n, p, "a KV type such as f16, or {k: q8_0, v: f16}", "!!str") {
		var apart bool
		if t.K, t.V, apart = strings.Cut(n.Value, "/"); !apart {
			t.V = t.K
		}
	}
}

func (c *Choice) decodeNode(d *document, n *yaml.Node, p path) {
	if n.Kind == yaml.ScalarNode {
		var one string
		d.decode(n, reflect.ValueOf(&one).Elem(), p, rules{})
		*c = Choice{one}
		return
	}
	var several []string
	d.decode(n, reflect.ValueOf(&several).Elem(), p, rules{minItems: 1, unique: true})
	*c = several
}

func (s *Stage) decodeNode(d *document, n *yaml.Node, p path) {
	if !d.isMapping(n, p) {
		return
	}
	if len(n.Content) != 2 {
		d.note(n, "begin each stage with its own hyphen", "a stage must have exactly one key, its kind; found %d", len(n.Content)/2)
		return
	}
	key := n.Content[0]
	if !slices.Contains(stageKinds(), key.Value) {
		d.note(key, suggestion(key.Value, stageKinds()), "unknown stage %q", key.Value)
		return
	}
	d.decodeStruct(n, reflect.ValueOf(s).Elem(), p)
}

func stageKinds() []string {
	return []string{plan.Calibrate, plan.Throughput, plan.Depth, plan.KV, plan.Perplexity, plan.HellaSwag, plan.Winogrande, plan.MultipleChoice, plan.KLDivergence}
}

// checkName refuses names that would not do in arm and file names.
func (d *document) checkName(key *yaml.Node, what string) {
	for i, r := range key.Value {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-+", r)) {
			d.note(key, "use letters, digits, dots, hyphens, plus signs and underscores, first a letter or digit", "%q cannot be the name of a %s", key.Value, what)
			return
		}
	}
	if key.Value == "" {
		d.note(key, "", "the name of a %s must not be empty", what)
	}
}
