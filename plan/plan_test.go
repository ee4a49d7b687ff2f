package plan

import (
	"slices"
	"testing"
	"time"
)

func TestDeadlineIsTheNextTimeTheClockShowsIt(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 1, 31, 22, 30, 0, 0, zone)
	for until, want := range map[string]string{
		"":                     "0001-01-01T00:00:00Z",
		"23:00":                "2026-01-31T23:00:00+01:00",
		"22:30":                "2026-02-01T22:30:00+01:00",
		"07:00":                "2026-02-01T07:00:00+01:00",
		"2026-03-01T00:00:00Z": "2026-03-01T00:00:00Z",
	} {
		got, err := Deadline(until, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("Deadline(%q) = %s, %v; want %s", until, got.Format(time.RFC3339), err, want)
		}
	}
	for _, bad := range []string{"7", "25:00", "tomorrow", "2026-03-01"} {
		if at, err := Deadline(bad, now); err == nil {
			t.Errorf("Deadline(%q) = %s, want an error", bad, at)
		}
	}
}

func TestDiffNamesTheFieldsThatDiffer(t *testing.T) {
	old := Key{Format: "F16", Threads: 2}
	got := Key{Format: "Q4_0", Threads: 2, Mask: "0,3"}.Diff(old)
	want := []Difference{{"format", "F16", "Q4_0"}, {"mask", "", "0,3"}}
	if !slices.Equal(got, want) {
		t.Errorf("Diff = %v, want %v", got, want)
	}
}

func TestKeysThatDifferHaveDifferentIDs(t *testing.T) {
	if a, b := (Key{Block: 1}).ID(), (Key{Block: 2}).ID(); a == b || len(a) != 16 {
		t.Errorf("ids %q and %q", a, b)
	}
	if a, b := (StateKey{Depth: 1}).ID(), (StateKey{Depth: 2}).ID(); a == b || len(a) != 16 {
		t.Errorf("state ids %q and %q", a, b)
	}
}

func TestEveryMetricHasAStage(t *testing.T) {
	for _, m := range Metrics() {
		if len(MetricStages(m)) == 0 {
			t.Errorf("metric %s has no stage", m)
		}
	}
	if MetricStages("speed") != nil {
		t.Error("an unknown metric has stages")
	}
}

func TestKVName(t *testing.T) {
	if got := KVName("f16", "f16"); got != "f16" {
		t.Errorf("equal types: %q", got)
	}
	if got := (Arm{TypeK: "q8_0", TypeV: "f16"}).KV(); got != "q8_0/f16" {
		t.Errorf("different types: %q", got)
	}
}

func TestEveryDimensionIsOfArmsOrConditionsOrTheMetric(t *testing.T) {
	a := Arm{Name: "n", Model: "m", Format: "F16", Mask: Mask{Name: "none"}, TypeK: "f16", TypeV: "f16"}
	c := Condition{Name: "tg16 @ d0", Stage: Depth, Generate: 16, Prompt: 8, Context: 4}
	for _, d := range Dimensions() {
		value, has := c.Value(d)
		switch {
		case d == DimMetric, OfArm(d) && a.Value(d) != "":
			if has {
				t.Errorf("a condition has the %s %q", d, value)
			}
		case !has || value == "":
			t.Errorf("%s is a dimension of nothing", d)
		}
	}
	if _, has := (Condition{Stage: Throughput, Generate: 16}).Value(DimPrompt); has {
		t.Error("a generation has a prompt")
	}
	if _, has := (Condition{Stage: Throughput, Generate: 16}).Value(DimDepth); has {
		t.Error("only the depth stage has a depth")
	}
}

func TestMasksAreTheSameByNameOrByWhatTheyDo(t *testing.T) {
	two := Mask{Name: "two", Layers: []int{3, 5}}
	for name, c := range map[string]struct {
		other Mask
		want  bool
	}{
		"the same name, other layers in another model": {Mask{Name: "two", Layers: []int{1}}, true},
		"the same layers":                  {Mask{Name: "deux", Layers: []int{3, 5}}, true},
		"other layers":                     {Mask{Name: "three", Layers: []int{3, 5, 7}}, false},
		"the same layers with a surrogate": {Mask{Name: "filled", Layers: []int{3, 5}, SurrogateHash: "50"}, false},
		"a profile that is not known yet":  {Mask{Name: "r", Pending: true, Profile: "recommended", Calibration: "ca"}, false},
	} {
		if got := two.Same(c.other); got != c.want || c.other.Same(two) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
