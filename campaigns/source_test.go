package campaigns

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/campaigns/fetch"
	"attnbudget/engine/builtin"
)

func fetchAll(t *testing.T, sources []fetch.Source) {
	t.Helper()
	for _, s := range sources {
		if _, err := fetch.Get(t.Context(), s, func(string, int64, int64) {}); err != nil {
			t.Fatal(err)
		}
	}
}

func names(sources []fetch.Source) []string {
	var out []string
	for _, s := range sources {
		out = append(out, s.String())
	}
	return out
}

func TestModelsThatAreNotInTheCacheAreFetchedAndThenPlanned(t *testing.T) {
	data, err := builtin.Open("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(data)
	sum := hex.EncodeToString(digest[:])
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/owner/repo/resolve/main/glossary.gguf" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	defer server.Close()
	t.Setenv("HF_ENDPOINT", server.URL)
	cache := t.TempDir()
	t.Setenv("ATTNBUDGET_CACHE", cache)

	path := write(t, filepath.Join(t.TempDir(), "c.yaml"), `name: test
models:
  hub: {path: hf:owner/repo/glossary.gguf, sha256: `+sum+`}
  tiny: synth:llama-tiny:layers=2
  same: synth:llama-tiny:layers=2:seed=1
`+prompt16)
	_, err = Load(t.Context(), path)
	want := path + `:3:15: hf:owner/repo/glossary.gguf is not in the cache
    3 |   hub: {path: hf:owner/repo/glossary.gguf, sha256: ` + sum[:40]
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("got\n%v\nwant\n%s", err, want)
	}
	want = path + `:4:9: synth:llama-tiny:layers=2:format=F16:seed=1 is not in the cache (321.4 KiB)
    4 |   tiny: synth:llama-tiny:layers=2
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^
  hint: run-campaign fetch ` + path + ` puts it there`
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got\n%v\nwant in it\n%s", err, want)
	}
	if entries, _ := os.ReadDir(cache); len(entries) > 0 {
		t.Errorf("loading has written %v", entries)
	}
	missing := Missing(err)
	if got, want := names(missing), []string{"hf:owner/repo/glossary.gguf", "synth:llama-tiny:layers=2:format=F16:seed=1"}; !slices.Equal(got, want) {
		t.Fatalf("missing are %q, want %q", got, want)
	}
	fetchAll(t, missing)

	p := loadFile(t, path).Plan()
	hub := p.Models[0]
	if hub.Source != "hf:owner/repo/glossary.gguf" || hub.Fingerprint != sum || hub.Path != filepath.Join(cache, "models", sum, "glossary.gguf") {
		t.Errorf("%+v", hub)
	}
	if tiny := p.Models[1]; tiny.Format != "F16" || tiny.Fingerprint != p.Models[2].Fingerprint || tiny.Fingerprint == sum {
		t.Errorf("%+v", tiny)
	}

	if err := os.WriteFile(hub.Path, data[:len(data)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = Load(t.Context(), path); err == nil || Missing(err) != nil {
		t.Errorf("a damaged copy in the cache: %v", err)
	}
}

func TestADamagedCopyInTheCacheIsNamed(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("ATTNBUDGET_CACHE", cache)
	sum := strings.Repeat("0", 64)
	folder := filepath.Join(cache, "models", sum)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := builtin.Open("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "m.gguf"), string(data))
	path := write(t, filepath.Join(t.TempDir(), "c.yaml"), "name: test\nmodels: {m: {path: hf:o/r/m.gguf, sha256: "+sum+"}}\n"+prompt16)
	_, err = Load(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "hint: the copy in the cache is not what was fetched: delete "+folder+" and fetch it again") {
		t.Errorf("%v", err)
	}
}

func TestMissingModelsAreOfferedOnlyIfNothingElseIsWrong(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	path := write(t, filepath.Join(t.TempDir(), "c.yaml"), "name: test\nmodels: {m: synth:llama-tiny, n: missing.gguf}\n"+prompt16)
	_, err := Load(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "is not in the cache") || !strings.Contains(err.Error(), "2 mistakes") || Missing(err) != nil {
		t.Errorf("%v offers %v", err, Missing(err))
	}
}

func TestASyntheticModelTakesTheCampaignsOneFormat(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	for formats, want := range map[string]string{"": "F16", "formats: [Q4_0]\n": "Q4_0", "formats: [Q4_0, Q8_0]\n": "F16"} {
		path := write(t, filepath.Join(t.TempDir(), "c.yaml"), "name: test\nmodels: {m: synth:llama-tiny}\n"+formats+prompt16)
		_, err := Load(t.Context(), path)
		fetchAll(t, Missing(err))
		if got := loadFile(t, path).Plan().Models[0].Format; got != want {
			t.Errorf("%q: the model is %s, want %s", formats, got, want)
		}
	}
}
