package gguf

import "testing"

func TestTypesGoByNameAndLayout(t *testing.T) {
	for name, row := range map[string]int{"F32": 1024, "F16": 512, "BF16": 512, "I32": 1024, "Q4_0": 144, "Q8_0": 272, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "Q8_K": 292, "IQ4_NL": 144, "IQ4_XS": 136} {
		typ, err := ParseType(name)
		if err != nil || !typ.Known() || typ.String() != name || typ.RowBytes(256) != row {
			t.Errorf("%s: %v, %v, rows of 256 take %d bytes, want %d", name, typ, err, typ.RowBytes(256), row)
		}
	}
}

func TestTypesNotReadAreNamedButNotParsed(t *testing.T) {
	for typ, name := range map[Type]string{4: "type 4", 16: "IQ2_XXS", 39: "MXFP4", 4711: "type 4711"} {
		if typ.Known() || typ.String() != name || typ.BlockSize() != 0 {
			t.Errorf("%d: known %t, name %s", typ, typ.Known(), typ)
		}
		if _, err := ParseType(name); err == nil {
			t.Errorf("%s was parsed", name)
		}
	}
	if _, err := ParseType(""); err == nil {
		t.Error("an empty name was parsed")
	}
}
