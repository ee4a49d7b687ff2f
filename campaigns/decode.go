package campaigns

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// nodeDecoder is a value that may be written in more than one form.
type nodeDecoder interface {
	decodeNode(d *document, n *yaml.Node, p path)
}

// rules are the constraints of a field, read from its jsonschema tag: the schema that editors check by and the checks
// made here cannot drift apart.
type rules struct {
	required, unique  bool
	minimum, maximum  *int64
	minItems          int
	enum              []string
	pattern, fallback string
}

func rulesOf(f reflect.StructField) rules {
	var r rules
	for word := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		name, value, _ := strings.Cut(word, "=")
		number, err := strconv.ParseInt(value, 10, 64)
		switch name {
		case "required":
			r.required = true
		case "uniqueItems":
			r.unique = true
		case "minimum":
			r.minimum = &number
		case "maximum":
			r.maximum = &number
		case "minItems":
			r.minItems = int(number)
		case "enum":
			r.enum = append(r.enum, value)
		case "pattern":
			r.pattern = value
		case "default":
			r.fallback = value
		case "":
			continue
		default:
			panic(fmt.Sprintf("campaigns: field %s has the unknown rule %q", f.Name, name))
		}
		if (name == "minimum" || name == "maximum" || name == "minItems") && err != nil {
			panic(fmt.Sprintf("campaigns: field %s: %v", f.Name, err))
		}
	}
	return r
}

func keyOf(f reflect.StructField) string { return f.Tag.Get("yaml") }

// fieldsOf are the fields that have keys: those of an embedded type too.
func fieldsOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous })
}

// decode fills v, which must be settable, from n and notes everything in it that does not fit.
func (d *document) decode(n *yaml.Node, v reflect.Value, p path, r rules) {
	d.values[p] = n
	if custom, ok := v.Addr().Interface().(nodeDecoder); ok {
		custom.decodeNode(d, n, p)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), p, r)
	case reflect.Struct:
		d.decodeStruct(n, v, p)
	case reflect.Slice:
		d.decodeList(n, v, p, r)
	case reflect.Map:
		d.decodeTexts(n, v, p)
	case reflect.String:
		if d.is(n, p, "a text", "!!str") {
			v.SetString(n.Value)
			d.checkText(n.Value, p, r)
		}
	case reflect.Int, reflect.Uint64:
		d.decodeNumber(n, v, p, r)
	case reflect.Float64:
		d.decodeFraction(n, v, p)
	case reflect.Bool:
		if d.is(n, p, "true or false", "!!bool") {
			v.SetBool(strings.EqualFold(n.Value, "true"))
		}
	default:
		panic(fmt.Sprintf("campaigns: no way to decode a %s", v.Type()))
	}
}

func (d *document) decodeStruct(n *yaml.Node, v reflect.Value, p path) {
	setDefaults(v)
	if !d.isMapping(n, p) {
		return
	}
	fields := map[string]reflect.StructField{}
	var known []string
	for _, f := range fieldsOf(v.Type()) {
		fields[keyOf(f)] = f
		known = append(known, keyOf(f))
	}
	misspelt := map[string]bool{} // a key that is there under a wrong name is not reported as missing too
	d.eachKey(n, p, func(key, value *yaml.Node, at path) {
		f, ok := fields[key.Value]
		if !ok {
			d.note(key, suggestion(key.Value, known), "unknown key %q%s", key.Value, inside(p))
			misspelt[nearest(key.Value, known)] = true
			return
		}
		d.decode(value, v.FieldByIndex(f.Index), at, rulesOf(f))
	})
	for _, key := range known {
		if _, given := d.values[p.key(key)]; !given && !misspelt[key] && rulesOf(fields[key]).required {
			d.note(n, "", "missing key %q%s", key, inside(p))
		}
	}
}

// eachKey visits the keys of a mapping in order and notes those that are given twice.
func (d *document) eachKey(n *yaml.Node, p path, visit func(key, value *yaml.Node, at path)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := p.key(key.Value)
		if first, twice := d.keys[at]; twice {
			d.note(key, "", "key %q is given twice, first in line %d", key.Value, first.Line)
			continue
		}
		d.keys[at] = key
		visit(key, value, at)
	}
}

// setDefaults fills the fields of a struct, and of structs inside it, that have a default.
func setDefaults(v reflect.Value) {
	for i := range v.NumField() {
		field, fallback := v.Field(i), rulesOf(v.Type().Field(i)).fallback
		if field.Kind() == reflect.Float64 && fallback != "" {
			setFraction(field, fallback)
			continue
		}
		number, err := strconv.ParseUint(fallback, 10, 63)
		switch {
		case field.Kind() == reflect.Struct:
			setDefaults(field)
		case fallback == "":
		case field.Kind() == reflect.String:
			field.SetString(fallback)
		case err != nil:
			panic(fmt.Sprintf("campaigns: default of %s: %v", v.Type().Field(i).Name, err))
		case field.Kind() == reflect.Int:
			field.SetInt(int64(number))
		case field.Kind() == reflect.Uint64:
			field.SetUint(number)
		}
	}
}

func setFraction(field reflect.Value, fallback string) {
	number, err := strconv.ParseFloat(fallback, 64)
	if err != nil {
		panic(fmt.Sprintf("campaigns: default %s: %v", fallback, err))
	}
	field.SetFloat(number)
}

func (d *document) decodeList(n *yaml.Node, v reflect.Value, p path, r rules) {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			hint = fmt.Sprintf("write [%s]", n.Value)
		}
		d.wrong(p, hint, "%s must be a list, found %s", label(p), describe(n))
		return
	}
	if len(n.Content) < r.minItems {
		d.wrong(p, "", "%s must not be empty", label(p))
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, items.Index(i), p.item(i), rules{minimum: r.minimum, maximum: r.maximum, enum: r.enum, pattern: r.pattern})
		if !r.unique {
			continue
		}
		if first := slices.IndexFunc(n.Content[:i], func(o *yaml.Node) bool { return o.Value == item.Value && o.Kind == item.Kind }); first >= 0 && item.Kind == yaml.ScalarNode {
			d.note(item, "", "%s lists %s twice", label(p), item.Value)
		}
	}
	v.Set(items)
}

// decodeTexts fills a map of names to texts; numbers are taken as they are written.
func (d *document) decodeTexts(n *yaml.Node, v reflect.Value, p path) {
	if !d.isMapping(n, p) {
		return
	}
	texts := map[string]string{}
	d.eachKey(n, p, func(key, value *yaml.Node, at path) {
		d.values[at] = value
		if value.Kind != yaml.ScalarNode || isNull(value) {
			d.note(value, "", "%s must be a text or a number, found %s", label(at), describe(value))
			return
		}
		texts[key.Value] = value.Value
	})
	v.Set(reflect.ValueOf(texts))
}

func (d *document) decodeNumber(n *yaml.Node, v reflect.Value, p path, r rules) {
	if !d.is(n, p, "a whole number", "!!int") {
		return
	}
	number, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		d.note(n, "", "%s must be a whole number in decimal digits, found %s", label(p), n.Value)
		return
	}
	low, high := int64(0), r.maximum
	if r.minimum != nil {
		low = *r.minimum
	}
	switch {
	case high != nil && (number < low || number > *high):
		d.note(n, "", "%s must be between %d and %d, found %d", label(p), low, *high, number)
	case number < low:
		d.note(n, "", "%s must be at least %d, found %d", label(p), low, number)
	case v.Kind() == reflect.Int:
		v.SetInt(number)
	default:
		v.SetUint(uint64(number))
	}
}

func (d *document) decodeFraction(n *yaml.Node, v reflect.Value, p path) {
	number, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!float" && n.Tag != "!!int" || err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		d.note(n, "write 0.05", "%s must be a number, found %s", label(p), describe(n))
		return
	}
	v.SetFloat(number)
}

func (d *document) checkText(s string, p path, r rules) {
	switch {
	case s == "":
		d.wrong(p, "", "%s must not be empty", label(p))
	case len(r.enum) > 0 && !slices.Contains(r.enum, s):
		d.wrong(p, suggestion(s, r.enum), "unknown value %q for %s", s, label(p))
	case r.pattern != "" && !regexp.MustCompile(r.pattern).MatchString(s):
		d.wrong(p, "use letters, digits, dots, hyphens and underscores, first a letter or digit", "%s cannot be %q", label(p), s)
	}
}

// is notes a value that is not a scalar of the wanted YAML type.
func (d *document) is(n *yaml.Node, p path, wanted, tag string) bool {
	if n.Kind == yaml.ScalarNode && n.Tag == tag {
		return true
	}
	hint := ""
	if tag == "!!str" && n.Kind == yaml.ScalarNode && !isNull(n) {
		hint = fmt.Sprintf("put it in quotes: %q", n.Value)
	}
	d.note(n, hint, "%s must be %s, found %s", label(p), wanted, describe(n))
	return false
}

func (d *document) isMapping(n *yaml.Node, p path) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	d.note(n, "", "%s must be a mapping of keys to values, found %s", label(p), describe(n))
	return false
}

// describe says in words what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("the text %q", clip(n.Value))
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	}
	return fmt.Sprintf("%s (%s)", clip(n.Value), strings.TrimPrefix(n.Tag, "!!"))
}

// clip keeps a quotation short.
func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// label names a value in messages: its key, or its place in the list under a key.
func label(p path) string {
	steps := strings.Split(string(p), "\x00")[1:]
	if len(steps) == 0 {
		return "a campaign"
	}
	last := steps[len(steps)-1]
	if number, isItem := strings.CutPrefix(last, "\x01"); isItem && len(steps) > 1 {
		i, _ := strconv.Atoi(number)
		return fmt.Sprintf("item %d of %q", i+1, steps[len(steps)-2])
	}
	return strconv.Quote(last)
}

// inside says in which value a key stands, "" at the top level.
func inside(p path) string {
	if p == "" {
		return ""
	}
	return " in " + label(p)
}
