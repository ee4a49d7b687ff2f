package engine

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestAContextThatTheMachineCannotHoldIsRefused(t *testing.T) {
	if have := installedMemory(); have == 0 || have > 1<<38 {
		t.Skipf("%d bytes of memory", have)
	}
	m := openTiny(t, "llama-tiny")
	const most = math.MaxInt32 - 256
	for name, o := range map[string]ContextOptions{
		"cells":  {NCtx: most, TypeK: CacheF32, TypeV: CacheF32},
		"ubatch": {NCtx: 256, NBatch: most, NUBatch: most},
	} {
		c, err := m.NewContext(o)
		var short *MemoryError
		if !errors.As(err, &short) || short.Need <= short.Have || !strings.Contains(err.Error(), "choose a shorter context or smaller batches") {
			t.Errorf("%s: %v", name, err)
		}
		if c != nil {
			c.Close()
		}
	}
}
