package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"attnbudget/engine/bench/limits"
	"attnbudget/engine/gguf"
	"attnbudget/engine/meter"
)

// profileTiny is a profile of llama-tiny, whose four layers are alike.
func profileTiny(t *testing.T, o Options) Profile {
	t.Helper()
	o.TypeK, o.TypeV, o.Trace, o.DepthTrace, o.Repetitions = gguf.F16, gguf.Q8_0, "a", "d", 2
	p, err := RunProfile(t.Context(), openTiny(t), o, limits.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAttentionFallsExactlyByTheLayersDropped(t *testing.T) {
	const layers = 4
	for _, test := range []Options{{Generate: 5, Depth: 30}, {Prompt: 40}, {Prompt: 7, Generate: 2, Depth: 3}} {
		full := profileTiny(t, test)
		for _, mask := range [][]int{{1}, {0, 3}, {0, 1, 2}, {1, 2, 3}} {
			t.Run(fmt.Sprintf("%s without %v", full.Test(), mask), func(t *testing.T) {
				o := test
				o.Mask = mask
				p := profileTiny(t, o)
				all, left := full.Work[meter.Attention], p.Work[meter.Attention]
				if all.Calls == 0 || all.Bytes == 0 {
					t.Fatalf("nothing was counted: %+v", all)
				}
				kept := int64(layers - len(mask))
				if left.Calls*layers != all.Calls*kept || left.Bytes*layers != all.Bytes*kept {
					t.Errorf("%d calls and %d bytes of %d and %d, want %d/%d of them", left.Calls, left.Bytes, all.Calls, all.Bytes, kept, layers)
				}
				if test.Prompt == 0 && left.Operations*layers != all.Operations*kept {
					t.Errorf("%d operations of %d, want %d/%d of them", left.Operations, all.Operations, kept, layers)
				}
				for i, part := range p.Parts[1 : layers+1] {
					if c := part.Work[meter.Attention]; part.Dropped != (c.Calls == 0) || part.Dropped && c.Time != 0 {
						t.Errorf("layer %d, dropped %v: %+v", i, part.Dropped, c)
					}
					before := full.Parts[i+1].Work
					want := before[meter.Matrices].Bytes
					if part.Dropped {
						want -= attentionMatrixBytes(t) * before[meter.Attention].Calls
					}
					if got := part.Work[meter.Matrices].Bytes; got != want {
						t.Errorf("layer %d reads %d bytes of weights, want %d", i, got, want)
					}
				}
			})
		}
	}
}

// attentionMatrixBytes is the size of the four projections of layer 0.
func attentionMatrixBytes(t *testing.T) int64 {
	t.Helper()
	f, err := gguf.Open("../testdata/conformance/models/llama-tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var n int64
	for _, name := range []string{"q", "k", "v", "output"} {
		w, ok := f.Tensor("blk.0.attn_" + name + ".weight")
		if !ok {
			t.Fatalf("no projection %s", name)
		}
		n += w.Bytes()
	}
	return n
}

func TestCountsAreThoseOfTheShape(t *testing.T) {
	p := profileTiny(t, Options{Generate: 3, Depth: 10})
	// llama-tiny: 4 heads and 2 KV heads of 64 (F16 keys, Q8_0 values), 4 layers; two samples.
	cells := int64(11 + 12 + 13)
	want := meter.Count{Calls: 2 * 3 * 4, Bytes: 2 * 4 * cells * (2*64*2 + 2*64/32*34), Operations: 2 * 4 * cells * 4 * 2 * (64 + 64)}
	got := p.Work[meter.Attention]
	got.Time, got.Events = 0, nil
	if got != want {
		t.Errorf("attention %+v, want %+v", got, want)
	}
	if got := p.Work[meter.Head].Calls; got != 2*3 {
		t.Errorf("%d output projections in two samples of 3 tokens", got)
	}
	if got := p.BytesPerToken() * 6; got != float64(p.Work.Total().Bytes) {
		t.Errorf("bytes of 6 tokens %v, of all work %v", got, p.Work.Total().Bytes)
	}
}

func TestTimesAddUpToTheSamples(t *testing.T) {
	p := profileTiny(t, Options{Prompt: 64, Generate: 4})
	var samples, parts time.Duration
	for _, ns := range p.SamplesNS {
		samples += time.Duration(ns)
	}
	for _, part := range p.Parts {
		parts += part.Work.Total().Time
	}
	if parts <= 0 {
		t.Errorf("of %v nothing is attributed to work", samples)
	}
	if total := p.Work.Total(); total.Time != parts || total.Time+p.Outside != samples || p.Outside < 0 {
		t.Errorf("kinds %v, layers %v, outside %v, samples %v", total.Time, parts, p.Outside, samples)
	}
	for _, n := range p.Collections {
		if n != 0 {
			t.Errorf("garbage collections inside samples: %v", p.Collections)
		}
	}
}

func TestProfilesPrintAsTextAndJSON(t *testing.T) {
	p := profileTiny(t, Options{Generate: 2, Mask: []int{2}})
	p.NoEvent = errors.New("a reason")
	var text, object bytes.Buffer
	if err := errors.Join(WriteProfiles(&text, "md", []Profile{p}), WriteProfiles(&object, "jsonl", []Profile{p})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"attention of layers 2 dropped", "matrices", "between passes", ", dropped", "no instructions and cycles: a reason"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var got struct {
		Work   map[string]meter.Count
		Layers []struct {
			Dropped bool
			Work    map[string]meter.Count
		}
		NoEvents string `json:"no_events"`
	}
	if err := json.Unmarshal(object.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.NoEvents != "a reason" || len(got.Layers) != 6 || !got.Layers[3].Dropped || got.Layers[3].Work["attention"].Calls != 0 ||
		got.Work["attention"].Bytes != p.Work[meter.Attention].Bytes {
		t.Errorf("JSON form %s", object.String())
	}
	if err := WriteProfiles(&text, "sql", nil); err == nil || !strings.Contains(err.Error(), "md, json, jsonl") {
		t.Errorf("sql: %v", err)
	}
}
