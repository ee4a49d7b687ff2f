package campaigns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"attnbudget/engine/builtin"
	"attnbudget/internal/golden"
	"attnbudget/plan"
)

// generateSchema reflects Spec. What a value may be written as besides its fields, and what the tags cannot say, is added.
func generateSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, ExpandedStruct: true, Anonymous: true, Mapper: writtenForms,
	}
	if err := r.AddGoComments("attnbudget/campaigns", ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	s := r.Reflect(&Spec{})
	s.Title = "attnbudget campaign"
	for name, v := range map[string]any{"Source": &Source{}, "Mask": &Mask{}} { // Spec reaches them only through mapped types
		d := r.Reflect(v)
		d.Version, d.Definitions = "", nil
		s.Definitions[name] = d
	}

	property(s, "formats").Items = text(Formats()...)
	table := s.Definitions["Table"]
	property(table, "rows").Items = text(plan.Dimensions()...)
	property(table, "columns").Items = text(plan.Dimensions()...)
	cells := property(table, "cells")
	cells.OneOf[0], cells.OneOf[1].Items = text(plan.Metrics()...), text(plan.Metrics()...)
	property(s.Definitions["Matrix"], "zip").Items.Items = text(armDimensions()...)
	kvForms(s.Definitions["KVType"])

	one := uint64(1)
	s.Definitions["Stage"].MinProperties, s.Definitions["Stage"].MaxProperties = &one, &one
	for _, stage := range []string{"Throughput", "Depth"} {
		s.Definitions[stage].AnyOf = []*jsonschema.Schema{{Required: []string{"prompt"}}, {Required: []string{"generate"}}}
	}
	return s
}

func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	p, _ := s.Properties.Get(key)
	return p
}

func text(enum ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, e := range enum {
		s.Enum = append(s.Enum, e)
	}
	return s
}

func oneOf(forms ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{OneOf: forms} }

// writtenForms are the schemas of types that decode themselves; nil for the others.
func writtenForms(typ reflect.Type) *jsonschema.Schema {
	one := uint64(1)
	switch typ {
	case reflect.TypeFor[Models]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: oneOf(text(), &jsonschema.Schema{Ref: "#/$defs/Source"})}
	case reflect.TypeFor[Masks]():
		layers := &jsonschema.Schema{Type: "array", UniqueItems: true, Items: &jsonschema.Schema{Type: "integer", Minimum: "0"}}
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: oneOf(layers, &jsonschema.Schema{Ref: "#/$defs/Mask"})}
	case reflect.TypeFor[Choice]():
		return oneOf(text(), &jsonschema.Schema{Type: "array", Items: text(), MinItems: &one, UniqueItems: true})
	case reflect.TypeFor[Digits]():
		return text()
	case reflect.TypeFor[map[string]string]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: oneOf(text(), &jsonschema.Schema{Type: "integer"})}
	}
	return nil
}

// kvForms turns the schema of a KV type's fields into that of its three written forms.
func kvForms(kv *jsonschema.Schema) {
	property(kv, "k").Enum = text(KVTypes()...).Enum
	property(kv, "v").Enum = text(KVTypes()...).Enum
	fields := *kv
	fields.Description = ""
	names := strings.Join(KVTypes(), "|")
	pair := text()
	pair.Pattern = fmt.Sprintf("^(%s)/(%s)$", names, names)
	*kv = jsonschema.Schema{Description: kv.Description, OneOf: []*jsonschema.Schema{text(KVTypes()...), pair, &fields}}
}

func TestSchemaIsThatOfTheTypes(t *testing.T) {
	s := generateSchema(t)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "campaign.schema.json", b.Bytes())
}

// Every key that the decoder knows is in the schema with a description, and no other.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Description string }
		Defs       map[string]struct {
			Properties map[string]struct{ Description string }
			OneOf      []struct {
				Properties map[string]struct{ Description string }
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	check := func(typ reflect.Type, properties map[string]struct{ Description string }) {
		var keys, want []string
		for key, p := range properties {
			keys = append(keys, key)
			if p.Description == "" {
				t.Errorf("%s: key %q has no description", typ.Name(), key)
			}
		}
		for _, f := range fieldsOf(typ) {
			want = append(want, keyOf(f))
		}
		slices.Sort(keys)
		slices.Sort(want)
		if !slices.Equal(keys, want) {
			t.Errorf("%s has the keys %q, the schema %q", typ.Name(), want, keys)
		}
	}
	check(reflect.TypeFor[Spec](), schema.Properties)
	for _, v := range []any{Source{}, Mask{}, Calibrate{}, Selection{}, Matrix{}, Filter{}, Run{}, Stage{}, Throughput{}, Depth{}, KV{}, Perplexity{}, Divergence{}, Tasks{}, Table{}} {
		typ := reflect.TypeOf(v)
		check(typ, schema.Defs[typ.Name()].Properties)
	}
	kv := schema.Defs["KVType"].OneOf
	check(reflect.TypeFor[KVType](), kv[len(kv)-1].Properties)
}

func TestShippedCampaignsLoad(t *testing.T) {
	c := loadFile(t, "quickstart.yaml")
	p := c.Plan()
	if len(p.Warnings) > 0 {
		t.Errorf("warnings: %q", p.Warnings)
	}
	if len(p.Tables) < 3 || len(p.Arms) < 2 {
		t.Errorf("%d tables, %d arms", len(p.Tables), len(p.Arms))
	}
	for _, kind := range stageKinds() {
		if kind == plan.MultipleChoice || kind == plan.Calibrate {
			continue // of one no tasks are built in; the other has no conditions
		}
		if !slices.ContainsFunc(p.Conditions, func(cond plan.Condition) bool { return cond.Stage == kind }) {
			t.Errorf("no stage %s", kind)
		}
	}
	for _, m := range p.Models {
		if !builtin.IsName(m.Source) {
			t.Errorf("model %s is not builtin", m.Name)
		}
	}
}

func TestTheShippedCalibrationLoads(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	p := loadFile(t, "calibrate.yaml").Plan()
	if len(p.Pending()) != 1 || len(p.Arms) != 3 || len(p.Tables) != 3 || !slices.Equal(p.Warnings, []string{pendingWarning}) {
		t.Errorf("%d calibrations wait, %d arms, %d tables, warnings %q", len(p.Pending()), len(p.Arms), len(p.Tables), p.Warnings)
	}
}
