package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hub serves files as a model hub does, unless misbehave takes the request over.
type hub struct {
	files     map[string][]byte // by path
	misbehave func(n int, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string // path and range of each
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	n := len(h.requests)
	h.mu.Unlock()
	if h.misbehave != nil && h.misbehave(n, w, r) {
		return
	}
	data, ok := h.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

const modelURL = "/owner/repo/resolve/main/dir/model.gguf"

// model is 300 000 bytes that look like nothing.
func modelBytes() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 300_000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func sumOf(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return hex.EncodeToString(sum[:])
}

// serve starts the hub with one model and gives the source that names it. The cache is empty.
func serve(t *testing.T, h *hub) Hub {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", "")
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	if h.files == nil {
		h.files = map[string][]byte{modelURL: modelBytes()}
	}
	s, err := ParseHub("owner/repo/dir/model.gguf", sumOf(modelBytes()))
	if err != nil {
		t.Fatal(err)
	}
	s.downloader = newDownloader()
	s.downloader.backoff, s.downloader.attempts = time.Millisecond, 3
	return s
}

func quiet(string, int64, int64) {}

// get fetches the model and checks that it is whole.
func get(t *testing.T, s Hub) {
	t.Helper()
	path, err := Get(t.Context(), s, quiet)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, modelBytes()) {
		t.Fatalf("%d bytes that are not the model", len(b))
	}
}

// inCache lists the files of the models folder, but for locks.
func inCache(t *testing.T) string {
	t.Helper()
	root := filepath.Join(os.Getenv("ATTNBUDGET_CACHE"), "models")
	var names []string
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && filepath.Ext(path) != ".lock" {
			name, _ := filepath.Rel(root, path)
			key, rest, _ := strings.Cut(name, "/")
			names = append(names, fmt.Sprintf("%s/%s:%d", "KEY"+strings.TrimLeft(key, "0123456789abcdef"), rest, info.Size()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func (h *hub) expect(t *testing.T, requests ...string) {
	t.Helper()
	if got, want := strings.Join(h.requests, "\n"), strings.Join(requests, "\n"); got != want {
		t.Errorf("requests\n%s\nwant\n%s", got, want)
	}
}

func TestAModelIsFetchedOnce(t *testing.T) {
	h := &hub{}
	s := serve(t, h)
	var last string
	for range 2 {
		if _, err := Get(t.Context(), s, func(file string, done, total int64) { last = fmt.Sprint(file, " ", done, " ", total) }); err != nil {
			t.Fatal(err)
		}
		get(t, s)
	}
	h.expect(t, modelURL)
	if last != "model.gguf 300000 300000" {
		t.Errorf("the last progress was %s", last)
	}
	if got := inCache(t); got != "KEY/model.gguf:300000" {
		t.Errorf("the cache has %s", got)
	}
}

// A run may be using the file by the name that it was fetched under.
func TestAModelThatIsThereUnderAnotherNameStaysAndIsUsed(t *testing.T) {
	h := &hub{}
	s := serve(t, h)
	get(t, s)
	mirror := s
	mirror.Owner, mirror.File = "mirror", "renamed.gguf"
	if path, err := Find(mirror); err != nil || filepath.Base(path) != "model.gguf" {
		t.Errorf("found %q, %v", path, err)
	}
	get(t, mirror)
	get(t, s)
	h.expect(t, modelURL)

	split := Hub{Owner: "o", Repo: "r", File: "m-00001-of-00002.gguf", SHA256: s.SHA256} // the folder has not all of its parts
	if path, err := Find(split); err != nil || path != "" {
		t.Errorf("found %q, %v", path, err)
	}
}

func TestAnUnfinishedFileOfAnotherNameDoesNotPassForAModel(t *testing.T) {
	h := &hub{files: map[string][]byte{"/mirror/repo/resolve/main/renamed.gguf": modelBytes()}}
	s := serve(t, h)
	leave(t, s, modelBytes()[:1000])
	mirror := s
	mirror.Owner, mirror.File = "mirror", "renamed.gguf"
	get(t, mirror)
	if got := inCache(t); got != "KEY/renamed.gguf:300000" {
		t.Errorf("the cache has %s", got)
	}
	get(t, s)
}

func TestTwoAtOnceFetchOnce(t *testing.T) {
	h := &hub{}
	s := serve(t, h)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if _, err := Get(t.Context(), s, quiet); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	h.expect(t, modelURL)
}

// cut answers with the first bytes of what was asked for and breaks the connection.
func cut(bytes int) func(int, http.ResponseWriter, *http.Request) bool {
	return func(_ int, w http.ResponseWriter, r *http.Request) bool {
		data, from := modelBytes(), 0
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(data[from:min(from+bytes, len(data))])
		if from+bytes < len(data) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return true
	}
}

func TestACutConnectionGoesOnWhereItBroke(t *testing.T) {
	// Seven connections, more than attempts that bring nothing new are allowed in a row.
	h := &hub{misbehave: cut(45_000)}
	get(t, serve(t, h))
	h.expect(t, modelURL, modelURL+" bytes=45000-", modelURL+" bytes=90000-", modelURL+" bytes=135000-",
		modelURL+" bytes=180000-", modelURL+" bytes=225000-", modelURL+" bytes=270000-")
}

func TestAServerThatIgnoresRangesStartsAgain(t *testing.T) {
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			return cut(100_000)(n, w, r)
		}
		_, _ = w.Write(modelBytes())
		return true
	}}
	get(t, serve(t, h))
	h.expect(t, modelURL, modelURL+" bytes=100000-")
}

func TestAServerThatAnswersAnotherRangeIsNotBelieved(t *testing.T) {
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1:
			return cut(100_000)(n, w, r)
		case 2:
			w.Header().Set("Content-Range", "bytes 50000-299999/300000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(modelBytes()[50_000:])
			return true
		}
		return false
	}}
	get(t, serve(t, h))
	h.expect(t, modelURL, modelURL+" bytes=100000-", modelURL)
}

func TestAProcessGoesOnWhereAnotherWasStopped(t *testing.T) {
	h := &hub{misbehave: cut(100_000)}
	s := serve(t, h)
	ctx, stop := context.WithCancel(t.Context())
	_, err := Get(ctx, s, func(_ string, done, _ int64) {
		if done >= 100_000 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a stopped download ended with %v", err)
	}
	if got := inCache(t); got != "KEY.partial/model.gguf:100000" {
		t.Errorf("the cache has %s", got)
	}
	h.misbehave = nil
	get(t, s)
	h.expect(t, modelURL, modelURL+" bytes=100000-")
	if got := inCache(t); got != "KEY/model.gguf:300000" {
		t.Errorf("the cache has %s", got)
	}
}

// leave puts an unfinished download into the cache.
func leave(t *testing.T, s Hub, data []byte) {
	t.Helper()
	folder, err := folderOf(s)
	if err != nil {
		t.Fatal(err)
	}
	partial := folder + ".partial"
	if err := os.MkdirAll(partial, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partial, s.files()[0]), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAWholeFileThatWasNotCheckedYetIsNotFetchedAgain(t *testing.T) {
	h := &hub{}
	s := serve(t, h)
	leave(t, s, modelBytes())
	get(t, s)
	h.expect(t, modelURL+" bytes=300000-")
}

func TestTheBeginningOfAnotherFileIsThrownAway(t *testing.T) {
	for name, left := range map[string][]byte{"shorter": []byte("<html>not a model</html>"), "longer": make([]byte, 400_000)} {
		t.Run(name, func(t *testing.T) {
			h := &hub{}
			s := serve(t, h)
			leave(t, s, left)
			get(t, s)
			h.expect(t, fmt.Sprintf("%s bytes=%d-", modelURL, len(left)), modelURL)
		})
	}
}

func TestAWrongHashIsRefusedAndNothingKept(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		size int
	}{
		"other file":     {bytes.Repeat([]byte("x"), 1000), 1000},
		"too short body": {modelBytes()[:200_000], 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hub{misbehave: func(_ int, w http.ResponseWriter, r *http.Request) bool {
				w.(http.Flusher).Flush() // no Content-Length: only the hash can tell
				_, _ = w.Write(c.data)
				return true
			}}
			_, err := Get(t.Context(), serve(t, h), quiet)
			var wrong *HashError
			if !errors.As(err, &wrong) || wrong.Bytes != int64(c.size) || wrong.Want != sumOf(modelBytes()) || wrong.Got != sumOf(c.data) {
				t.Fatalf("%v", err)
			}
			h.expect(t, modelURL)
			if got := inCache(t); got != "" {
				t.Errorf("the cache has %s", got)
			}
		})
	}
}

func TestWhatWillNotGetBetterIsNotTriedAgain(t *testing.T) {
	for status, hint := range map[int]string{404: "check owner, repository and file name", 401: "set HF_TOKEN", 403: "set HF_TOKEN", 400: "400 Bad Request"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			h := &hub{misbehave: func(_ int, w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(status)
				return true
			}}
			_, err := Get(t.Context(), serve(t, h), quiet)
			var e *StatusError
			if !errors.As(err, &e) || e.Status != status || !strings.Contains(err.Error(), hint) || !strings.HasPrefix(err.Error(), "hf:owner/repo/dir/model.gguf: ") {
				t.Fatalf("%v", err)
			}
			h.expect(t, modelURL)
		})
	}
}

func TestABusyServerIsAskedAgain(t *testing.T) {
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 2 {
			return false
		}
		w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}[n-1])
		return true
	}}
	get(t, serve(t, h))
	h.expect(t, modelURL, modelURL, modelURL)
}

func TestTheServersPauseIsKept(t *testing.T) {
	var first, second time.Time
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		second = time.Now()
		return false
	}}
	get(t, serve(t, h))
	if pause := second.Sub(first); pause < time.Second {
		t.Errorf("asked again after %v", pause)
	}
}

func TestAServerThatBringsNothingNewIsGivenUp(t *testing.T) {
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			return cut(100_000)(n, w, r)
		}
		w.WriteHeader(http.StatusBadGateway)
		return true
	}}
	_, err := Get(t.Context(), serve(t, h), quiet)
	if err == nil || !strings.Contains(err.Error(), "gave up after 3 attempts") || !strings.Contains(err.Error(), "the 100000 bytes that have arrived are kept") {
		t.Fatalf("%v", err)
	}
	if got := inCache(t); got != "KEY.partial/model.gguf:100000" {
		t.Errorf("the cache has %s", got)
	}
}

func TestAConnectionThatHangsIsBroken(t *testing.T) {
	h := &hub{misbehave: func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write(modelBytes()[:100_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}}
	s := serve(t, h)
	s.downloader.idle = 200 * time.Millisecond
	get(t, s)
	h.expect(t, modelURL, modelURL+" bytes=100000-")
}

func TestASplitModelIsFetchedWholeAndHashedOverAllParts(t *testing.T) {
	data := modelBytes()
	h := &hub{files: map[string][]byte{}}
	for i := range 3 {
		h.files[fmt.Sprintf("/owner/repo/resolve/main/big-%05d-of-00003.gguf", i+1)] = data[i*100_000:][:100_000]
	}
	s := serve(t, h)
	split, err := ParseHub("owner/repo/big-00001-of-00003.gguf", sumOf(data))
	if err != nil {
		t.Fatal(err)
	}
	split.downloader = s.downloader
	path, err := Get(t.Context(), split, quiet)
	if err != nil || filepath.Base(path) != "big-00001-of-00003.gguf" {
		t.Fatal(path, err)
	}
	if got := inCache(t); got != "KEY/big-00001-of-00003.gguf:100000 KEY/big-00002-of-00003.gguf:100000 KEY/big-00003-of-00003.gguf:100000" {
		t.Errorf("the cache has %s", got)
	}
}

func TestVerifyingStopsWithTheCommandAndTheDownloadIsKept(t *testing.T) {
	s := serve(t, &hub{})
	ctx, cancel := context.WithCancel(t.Context())
	path, err := Get(ctx, s, func(_ string, done, total int64) {
		if done == total {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", path, err)
	}
	if got := inCache(t); got != "KEY.partial/model.gguf:300000" {
		t.Errorf("the cache has %s", got)
	}
}

func TestATokenGoesToTheHubAloneAndEncryptedOnly(t *testing.T) {
	var seen []string
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "elsewhere "+r.Header.Get("Authorization"))
		_, _ = w.Write(modelBytes())
	}))
	defer elsewhere.Close()
	target := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) // another host
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "hub "+r.Header.Get("Authorization"))
		http.Redirect(w, r, target, http.StatusFound)
	})
	for name, start := range map[string]func(http.Handler) *httptest.Server{"https": httptest.NewTLSServer, "http": httptest.NewServer} {
		seen = nil
		server := start(redirect)
		d := newDownloader()
		d.client = elsewhere.Client()
		d.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true // the certificate is for 127.0.0.1
		d.token, d.attempts = "secret", 1
		err := d.download(t.Context(), server.URL+modelURL, filepath.Join(t.TempDir(), "model"), func(int64, int64) {})
		server.Close()
		want := map[string]string{"https": "hub Bearer secret,elsewhere ", "http": "hub ,elsewhere "}[name]
		if got := strings.Join(seen, ","); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

// Hubs send downloads to hosts below their own name, or to another port, which are not the hub.
func TestATokenDoesNotFollowToANeighbourOfTheHub(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"another port": httptest.NewTLSServer, "not encrypted": httptest.NewServer} {
		var seen []string
		elsewhere := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, "elsewhere "+r.Header.Get("Authorization"))
			_, _ = w.Write(modelBytes())
		}))
		server := httptest.NewUnstartedServer(nil)
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, "hub "+r.Header.Get("Authorization"))
			if r.URL.Path != "/again" {
				http.Redirect(w, r, server.URL+"/again", http.StatusFound)
				return
			}
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		})
		server.StartTLS()
		d := newDownloader()
		d.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		d.token, d.attempts = "secret", 1
		err := d.download(t.Context(), server.URL+modelURL, filepath.Join(t.TempDir(), "model"), func(int64, int64) {})
		if got := strings.Join(seen, ","); err != nil || got != "hub Bearer secret,hub Bearer secret,elsewhere " {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		server.Close()
		elsewhere.Close()
	}
}

func TestAnEndpointThatIsNoAddressIsRefused(t *testing.T) {
	s := serve(t, &hub{})
	for _, address := range []string{"mirror.example", "ftp://mirror.example", "https://"} {
		t.Setenv("HF_ENDPOINT", address)
		if _, err := Get(t.Context(), s, quiet); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT must be an address") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestHubSourcesAreReadAndBadOnesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"owner/repo/model.gguf":            "",
		"owner/repo/sub/dir/model.gguf":    "",
		"o/r/m-00001-of-00002.gguf":        "",
		"owner/model.gguf":                 `"owner/model.gguf" must be OWNER/REPO/FILE`,
		"owner/repo/../../etc/model.gguf":  `".." cannot be part of OWNER/REPO/FILE`,
		"owner/repo/.gguf":                 `".gguf" cannot be part`,
		"owner//model.gguf":                `"" cannot be part`,
		"owner/repo/model?x=1.gguf":        `cannot be part`,
		"owner/repo/model.safetensors":     "model.safetensors is not a GGUF file: its name must end in .gguf",
		"o/r/sub/m-00002-of-00003.gguf":    "m-00002-of-00003.gguf is not the first part of the model: write m-00001-of-00003.gguf",
		"o/r/m-00001-of-00000.gguf":        "at least one part",
		"https://example.org/model.gguf":   "cannot be part",
		"owner/repo/resolve/main/a b.gguf": "cannot be part",
		"owner/repo/model.gguf/":           `"" cannot be part`,
		"owner/repo/mödel.gguf":            "cannot be part",
	} {
		s, err := ParseHub(text, sumOf(nil))
		switch {
		case want == "" && (err != nil || s.String() != "hf:"+text):
			t.Errorf("%s: %s, %v", text, s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
