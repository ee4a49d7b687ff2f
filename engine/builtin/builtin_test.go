package builtin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestEveryFileIsTheOneInTheFolder(t *testing.T) {
	for name, path := range map[string]string{
		"glossary-5m": "glossary-5m-f16.gguf", "calibration": "calibration.txt", "evaluation": "evaluation.txt",
		"gloss-swag": "gloss-swag.txt", "gloss-grande": "gloss-grande.csv",
	} {
		want, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{name, Prefix + name} {
			if got, err := Open(n); err != nil || string(got) != string(want) {
				t.Errorf("Open(%q): %d bytes, %v; want the %d bytes of %s", n, len(got), err, len(want), path)
			}
		}
	}
}

func TestModelFingerprintIsTheDocumentedOne(t *testing.T) {
	got, err := SHA256("builtin:glossary-5m")
	const want = "0a957da3b44f52dd81e96407abda9a3ae658be757d2be16bcfdb5f34ac377860"
	if err != nil || got != want {
		t.Errorf("SHA256 = %s, %v; want %s", got, err, want)
	}
}

func TestUnknownNameListsTheKnownOnes(t *testing.T) {
	_, err := Open("builtin:glossary")
	var unknown *UnknownError
	if !errors.As(err, &unknown) {
		t.Fatalf("got %v, want *UnknownError", err)
	}
	const want = `no builtin file "glossary"; there are glossary-5m, calibration, evaluation, gloss-swag, gloss-grande`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestNamesAreFilteredByKind(t *testing.T) {
	if got := Names(Text); len(got) != 2 || got[0] != "calibration" || got[1] != "evaluation" {
		t.Errorf("Names(Text) = %v", got)
	}
}
