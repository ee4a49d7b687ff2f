package campaigns

import (
	"fmt"
	"strings"
	"testing"

	"attnbudget/plan"
)

// changes are pairs of campaigns that differ in one thing, and the fields of the first unit's key that follow it.
var changes = []struct {
	from, to string // the stages in the last line
	fields   string
	state    bool // the first state is another one as well
}{
	{"formats: [F16]\n" + atDepth, "formats: [Q8_0]\n" + atDepth, "format", true},
	{"masks: {m: []}\n" + atDepth, "masks: {m: [2, 1]}\n" + atDepth, "mask", true},
	{"kv_types: [f16]\n" + atDepth, "kv_types: [{k: q8_0, v: f16}]\n" + atDepth, "type_k", true},
	{"kv_types: [f16]\n" + atDepth, "kv_types: [{k: f16, v: q8_0}]\n" + atDepth, "type_v", true},
	{"run: {threads: 1, kernels: auto}\n" + atDepth, "run: {threads: 1, kernels: upstream}\n" + atDepth, "engine_version", true},
	{"run: {threads: 1}\n" + atDepth, "run: {threads: 2}\n" + atDepth, "threads", false},
	{"run: {seed: 1}\n" + atDepth, "run: {seed: 2}\n" + atDepth, "trace", true},
	{atDepth, "[{depth: {depths: [64], generate: 4}}]\n", "depth trace", true},
	{atDepth, "[{depth: {depths: [32], generate: 5}}]\n", "generate trace", false},
	{atDepth, "[{depth: {depths: [32], prompt: 4}}]\n", "prompt generate trace", false},
	{"[{throughput: {prompt: [4]}}]\n", "[{throughput: {prompt: [5]}}]\n", "prompt trace", false},
	{"[{kv: {contexts: [64]}}]\n", "[{kv: {contexts: [65]}}]\n", "context", false},
	{"[{hellaswag: {tasks: builtin:gloss-swag, limit: 3}}]\n", "[{hellaswag: {tasks: builtin:gloss-swag, limit: 4}}]\n", "tasks", false},
	{diverging, strings.Replace(diverging, "evaluation", "calibration", 1), "input_sha256", true},
	{diverging, strings.Replace(diverging, "chunks: 2", "chunks: 3", 1), "chunks", true},
	{diverging, strings.Replace(diverging, "context: 64", "context: 32", 1), "context", true},
	{diverging, strings.Replace(diverging, "chunks: 2", "chunks: 2, logits_format: float32", 1), "logits_format", true},
	{"formats: [F16, Q8_0]\nbaseline: {format: F16}\n" + diverging, "formats: [F16, Q8_0]\nbaseline: {format: Q8_0}\n" + diverging, "base", true},
	{"masks: {m: [], n: [1]}\nbaseline: {mask: m}\n" + diverging, "masks: {m: [], n: [1]}\nbaseline: {mask: n}\n" + diverging, "base", true},
	{"kv_types: [f16, q8_0]\nbaseline: {kv: f16}\n" + diverging, "kv_types: [f16, q8_0]\nbaseline: {kv: q8_0}\n" + diverging, "base", true},
}

const (
	atDepth   = "[{depth: {depths: [32], generate: 4}}]\n"
	diverging = "[{kl-divergence: {text: builtin:evaluation, context: 64, chunks: 2}}]\n"
)

func TestAChangeIsInTheKeysOfUnitsAndStatesThatFollowIt(t *testing.T) {
	expanded := func(text string) *plan.Plan {
		last := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
		return load(t, text[:last]+"stages: "+text[last:]).Plan()
	}
	for _, c := range changes {
		before, after := expanded(c.from), expanded(c.to)
		var fields []string
		for _, d := range after.Units[0].Key.Diff(before.Units[0].Key) {
			fields = append(fields, d.Field)
		}
		if got := strings.Join(fields, " "); got != c.fields {
			t.Errorf("%q to %q changes %q, want %q", c.from, c.to, got, c.fields)
		}
		if len(before.States) > 0 && (before.States[0].ID != after.States[0].ID) != c.state {
			t.Errorf("%q to %q: another state %v, want %v", c.from, c.to, !c.state, c.state)
		}
	}
	key := expanded(atDepth).Units[0].Key
	if got := fmt.Sprintln(key.Engine, key.Batch, key.UBatch, key.Control); got != "embedded 2048 512 false\n" {
		t.Errorf("engine, batch sizes and control are %s", got)
	}
}
