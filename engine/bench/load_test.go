package bench

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"attnbudget/engine"
)

func TestLoadingIsMeasuredStepByStep(t *testing.T) {
	o := LoadOptions{Path: "../testdata/conformance/models/llama-tiny.gguf", Prompt: 3, Repetitions: 2, Context: engine.ContextOptions{Threads: 2}}
	loads, err := RunLoad(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(loads) != 2 {
		t.Fatalf("%d loads, want 2", len(loads))
	}
	for _, l := range loads {
		steps := l.Open + l.Context + l.Touch + l.Compute
		if l.Open <= 0 || l.Context <= 0 || l.Touch <= 0 || l.Compute <= 0 || steps > l.Total || l.Threads != 2 || l.Bytes <= 0 {
			t.Errorf("steps %d of %d ns: %+v", steps, l.Total, l)
		}
	}
	var table bytes.Buffer
	if err := WriteLoads(&table, "md", loads); err != nil || strings.Count(table.String(), "\n") != 3 || !strings.Contains(table.String(), "memory") {
		t.Errorf("%v, table\n%s", err, table.String())
	}
	o.Prompt = 0
	if _, err := RunLoad(t.Context(), o); err == nil {
		t.Error("a load without a token was accepted")
	}
}

func TestAColdLoadComesFromTheDiskOrIsRefused(t *testing.T) {
	loads, err := RunLoad(t.Context(), LoadOptions{Path: "../testdata/conformance/models/llama-tiny.gguf", Prompt: 1, Cold: true, NoTouch: true})
	if runtime.GOOS != "linux" {
		if err == nil {
			t.Error("nothing says that the file did not come from the disk")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if l := loads[0]; !l.Cold || l.Touched || l.Touch != 0 || l.Compute <= 0 {
		t.Errorf("%+v", l)
	}
}
