package plan

import (
	"strings"
	"testing"
)

func TestStatesTakeDiskSpaceFromTheirFirstUnitToTheirLast(t *testing.T) {
	p := Plan{States: []State{{ID: "a", Bytes: 1}, {ID: "b", Bytes: 10}, {ID: "c", Bytes: 100}}}
	for order, want := range map[string]int64{"": 0, "- -": 0, "a a": 1, "a b c": 100, "a b a c": 100, "a b a b": 11, "a b c a": 101, "a b c a - b": 111} {
		var units []Unit
		for _, id := range strings.Fields(order) {
			units = append(units, Unit{State: strings.Trim(id, "-")})
		}
		if got := p.StateBytes(units); got != want {
			t.Errorf("%q takes %d, want %d", order, got, want)
		}
	}
}

func TestSettingsTellArmsOfAModelApart(t *testing.T) {
	for want, arm := range map[string]Arm{
		"F16, nothing dropped, kv f16":          {Format: "F16", TypeK: "f16", TypeV: "f16"},
		"Q4_0, layers 0,3 dropped, kv q8_0/f16": {Format: "Q4_0", Mask: Mask{Layers: []int{0, 3}}, TypeK: "q8_0", TypeV: "f16"},
	} {
		if got := arm.Setting(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
