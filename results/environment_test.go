package results

import (
	"reflect"
	"strings"
	"testing"

	"attnbudget/plan"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFieldOfAnEnvironmentCounts(t *testing.T) {
	base := Environment{CPUFlags: []string{"avx2", "fma"}}
	fields := reflect.TypeFor[Environment]()
	for i := range fields.NumField() {
		if fields.Field(i).Name == "Schema" {
			continue
		}
		changed := base
		switch v := reflect.ValueOf(&changed).Elem().Field(i); v.Kind() {
		case reflect.String:
			v.SetString("other")
		case reflect.Int:
			v.SetInt(99)
		case reflect.Uint64:
			v.SetUint(99)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"avx2", "avx512f"}))
		default:
			t.Fatalf("no test value for field %s", fields.Field(i).Name)
		}
		diff := changed.Diff(base)
		if name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); len(diff) != 1 || diff[0].Field != name {
			t.Errorf("%s: differences %v", fields.Field(i).Name, diff)
		}
		if changed.ID() == base.ID() {
			t.Errorf("%s does not change the ID", fields.Field(i).Name)
		}
	}
	stored := base
	stored.Schema = EnvironmentSchema
	if diff := stored.Diff(base); diff != nil || stored.ID() != base.ID() {
		t.Errorf("an environment differs from itself as it is stored: %v, ID %s and %s", diff, base.ID(), stored.ID())
	}
}

func TestADifferenceOfCPUFlagsNamesOnlyTheFlagsThatDiffer(t *testing.T) {
	old := Environment{CPUFlags: []string{"avx", "avx2", "fma"}, Kernels: "avx2"}
	now := Environment{CPUFlags: []string{"avx", "avx512f", "fma"}, Kernels: "avx512"}
	if diff := cmp.Diff([]plan.Difference{{Field: "cpu_flags", Old: "avx2", New: "avx512f"}, {Field: "kernels", Old: "avx2", New: "avx512"}}, now.Diff(old)); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentsAreStoredByID(t *testing.T) {
	d := newDir(t)
	e := Environment{Schema: EnvironmentSchema, CPU: "Example 9000", CPUFlags: []string{"avx2"}}
	for range 2 {
		if err := d.WriteEnvironment(e); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Environments()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]Environment{e.ID(): e}, all); diff != "" {
		t.Error(diff)
	}
	if got := all[e.ID()].ID(); got != e.ID() {
		t.Errorf("ID %s became %s", e.ID(), got)
	}
}
