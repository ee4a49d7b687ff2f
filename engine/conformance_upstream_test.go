package engine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"attnbudget/engine/gguf"
)

// How far upstream is from itself: the same release was built for several instruction sets, which add up in other orders.
// docs/conformance.md tells how the two flags are used to measure it again.
var (
	upstreamInputs  = flag.String("upstream-inputs", "", "write the model of every conformance case, and runs.tsv, into this folder")
	upstreamOutputs = flag.String("upstream-outputs", "", "rewrite builds.json and the shallow references from this folder: BUILD/CASE.f32 for every line of runs.tsv")
)

const (
	buildsFile     = conformance + "/builds.json"
	referenceBuild = "haswell" // the references were made by it
)

// builds are upstream's own, by the names of its libraries, and the distance of each to the reference of a case.
type builds struct {
	Names []string
	Cases map[string][]float64
}

func readBuilds(t *testing.T) builds {
	t.Helper()
	b, err := os.ReadFile(buildsFile)
	if err != nil {
		t.Fatal(err)
	}
	var x builds
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// alone marks the runs in which a build was fed one token at a time. They do not count for limits: with a half precision cache
// upstream then adds values up in half precision, which we do not.
const alone = "-1"

// furthest is the greatest distance of a build to the reference of the case.
func (b builds) furthest(t *testing.T, name string) float64 {
	t.Helper()
	var most float64
	distances, ok := b.Cases[name]
	if !ok {
		t.Fatalf("%s does not have %s", buildsFile, name)
	}
	for i, d := range distances {
		if !strings.HasSuffix(b.Names[i], alone) {
			most = max(most, d)
		}
	}
	return most
}

func hiddenCase(name string, layer int) string { return fmt.Sprintf("%s-tiny.hidden-%d", name, layer) }

// upstreamRun is one run of upstream: a line of runs.tsv.
type upstreamRun struct {
	name, model string // CASE, FILE.gguf
	tokens      []int32
	kv          string
	flash       bool
	ubatch      int
	rotate      bool
}

func (r upstreamRun) line() string {
	tokens := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.tokens), " ", ","), "[]")
	return strings.Join([]string{r.name, r.model, r.kv, strconv.FormatBool(r.flash), strconv.Itoa(r.ubatch), strconv.FormatBool(r.rotate), tokens}, "\t")
}

func TestWriteUpstreamInputs(t *testing.T) {
	if *upstreamInputs == "" {
		t.Skip("no -upstream-inputs")
	}
	index := readIndex(t)
	lines := []string{"case\tmodel\tkv\tflash\tubatch\trotate\ttokens"}
	add := func(r upstreamRun, model func(t *testing.T) string) {
		t.Run(r.name, func(t *testing.T) {
			out := filepath.Join(*upstreamInputs, r.model)
			if _, err := os.Stat(out); err != nil {
				if err := os.Rename(model(t), out); err != nil {
					t.Fatal(err)
				}
			}
			lines = append(lines, r.line())
		})
	}
	for _, c := range index.Cases {
		r := upstreamRun{name: c.Case, model: c.upstreamModel(), tokens: index.Tokens[c.Tokens], kv: c.KV, flash: c.Flash, ubatch: 512, rotate: c.Rotation != "disabled"}
		if c.NUBatch > 0 {
			r.ubatch = c.NUBatch
		}
		add(r, c.forUpstream)
	}
	for _, s := range shallowCases() {
		r := upstreamRun{name: s.name(), model: s.upstreamModel(), tokens: index.Tokens["seed7-n64"], kv: s.kv, flash: s.kv != "f32", ubatch: 512, rotate: true}
		add(r, s.forUpstream)
	}
	if err := os.WriteFile(filepath.Join(*upstreamInputs, "runs.tsv"), []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}

// upstreamModel names the file of forUpstream: cases that are computed with the same weights share one.
func (c conformanceCase) upstreamModel() string {
	if !c.expanded() {
		return c.Model + "." + c.Weights + ".gguf"
	}
	name := c.Model + ".f32"
	for _, layer := range c.Mask {
		name += fmt.Sprintf("-%d", layer)
	}
	return name + ".gguf"
}

// forUpstream writes the model as upstream is to compute it: in F32, and the output projection of a dropped layer zero,
// which adds nothing to the residual stream.
func (c conformanceCase) forUpstream(t *testing.T) string {
	t.Helper()
	path := c.path(t)
	if !c.expanded() {
		return mutate(t, path, mutation{})
	}
	tensors := widened(t, path)
	for _, layer := range c.Mask {
		clear(tensors[fmt.Sprintf("blk.%d.attn_output.weight", layer)].Data)
	}
	return mutate(t, path, mutation{replace: tensors})
}

func (s shallowCase) upstreamModel() string { return "shallow." + s.model + "." + s.weights + ".gguf" }

func (s shallowCase) forUpstream(t *testing.T) string {
	t.Helper()
	path := s.path(t)
	if s.weights == gguf.F32.String() {
		path = mutate(t, path, mutation{replace: widened(t, path)})
	}
	return path
}

func TestReadUpstreamOutputs(t *testing.T) {
	if *upstreamOutputs == "" {
		t.Skip("no -upstream-outputs")
	}
	index := readIndex(t)
	b := builds{Names: []string{referenceBuild, referenceBuild + alone, "zen4", "sandybridge", "sse42", "x64"}, Cases: map[string][]float64{}}
	for _, name := range b.Names {
		read := func(c string) []float32 { return readFloats(t, filepath.Join(*upstreamOutputs, name, c+".f32")) }
		add := func(c string, d float64) { b.Cases[c] = append(b.Cases[c], d) }
		for _, c := range index.Cases {
			add(c.Case, c.distance(c.rows(read(c.Case)), c.reference(t)))
		}
		for _, model := range architectures {
			layers := openTest(t, tiny(model), Options{}).Info().Layers
			want := layersOf(referenceHidden(t, model), layers)
			for layer, x := range layersOf(read(model+"-tiny.hidden"), layers) {
				add(hiddenCase(model, layer), maxDifference(x, want[layer]))
			}
		}
		for _, s := range shallowCases() {
			logits := shallowRows(read(s.name()))
			if name == referenceBuild {
				writeFloats(t, s.file(), logits)
			}
			add(s.name(), typicalDifference(logits, s.reference(t)))
		}
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(buildsFile, append(text, '\n'), 0o666); err != nil {
		t.Fatal(err)
	}
}

// rows picks those that the reference has.
func (c conformanceCase) rows(all []float32) []float32 {
	var out []float32
	for i := range len(all) / c.NVocab {
		if c.wantsRow(i) {
			out = append(out, all[i*c.NVocab:][:c.NVocab]...)
		}
	}
	return out
}

func writeFloats(t *testing.T, path string, x []float32) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), 0o666); err != nil {
		t.Fatal(err)
	}
}
