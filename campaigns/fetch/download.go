package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// downloader gets files over HTTP and goes on where a connection broke.
type downloader struct {
	client   *http.Client
	token    string        // sent to the hub, not to where it redirects
	attempts int           // in a row that bring nothing new, before it gives up
	backoff  time.Duration // before the second of them; doubles
	idle     time.Duration // a connection that brings nothing for so long is broken
}

func newDownloader() *downloader {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute
	return &downloader{client: &http.Client{Transport: t, CheckRedirect: keepToken}, token: os.Getenv("HF_TOKEN"), attempts: 6, backoff: time.Second, idle: time.Minute}
}

// keepToken leaves the token out where a hub redirects to anything but itself. The HTTP client alone would send it to hosts below
// the hub's name, to other ports, and unencrypted.
func keepToken(req *http.Request, via []*http.Request) error {
	if hub := via[0].URL; req.URL.Scheme != hub.Scheme || req.URL.Host != hub.Host {
		req.Header.Del("Authorization")
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// StatusError is an answer of a server other than a file.
type StatusError struct {
	URL    string
	Status int

	retryAfter time.Duration
}

func (e *StatusError) Error() string {
	hint := ""
	switch e.Status {
	case http.StatusNotFound, http.StatusGone:
		hint = ": check owner, repository and file name"
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = ": the repository does not exist or is not open to everybody; set HF_TOKEN, or download the file by hand and write its path"
	}
	return fmt.Sprintf("%s: status %d %s%s", e.URL, e.Status, http.StatusText(e.Status), hint)
}

// temporary reports whether the same request may succeed later.
func (e *StatusError) temporary() bool {
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// download completes the file at path. What is there already is taken as the beginning; whether it is, only the hash of
// the whole can tell. The file is synced.
func (d *downloader) download(ctx context.Context, url, path string, progress func(done, total int64)) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	most, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for failed := 0; ; {
		err := d.attempt(ctx, url, f, progress)
		if err == nil {
			return errors.Join(f.Sync(), f.Close())
		}
		var status *StatusError
		var local *fileError
		if ctx.Err() != nil {
			return ctx.Err()
		} else if errors.As(err, &local) || errors.As(err, &status) && !status.temporary() {
			return err
		}
		size, seekErr := f.Seek(0, io.SeekEnd)
		if seekErr != nil {
			return seekErr
		}
		if failed++; size > most {
			most, failed = size, 1
		}
		if failed >= d.attempts {
			return fmt.Errorf("gave up after %d attempts: %w; the %d bytes that have arrived are kept: run the command again to go on from there", failed, err, size)
		}
		if err := d.wait(ctx, failed, status); err != nil {
			return err
		}
	}
}

// maxWait bounds what a server may ask for.
const maxWait = 5 * time.Minute

// wait waits before the next attempt, as long as the server asked for if it did.
func (d *downloader) wait(ctx context.Context, failed int, status *StatusError) error {
	pause := d.backoff << (failed - 1)
	if status != nil && status.retryAfter > 0 {
		pause = min(status.retryAfter, maxWait)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// attempt appends what one connection brings. A nil error says that the file is whole, as far as the server says how long
// it is.
func (d *downloader) attempt(ctx context.Context, url string, f *os.File, progress func(done, total int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return &fileError{err}
	}
	req, err := d.request(ctx, url, size)
	if err != nil {
		return &fileError{err}
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	start, total, err := place(resp, size)
	if err != nil {
		return err
	}
	if start != size { // the server ignores ranges, or what is there is longer than the file
		if err := errors.Join(f.Truncate(0), seekStart(f)); err != nil {
			return &fileError{err}
		}
		if start != 0 {
			return fmt.Errorf("the server could not go on from byte %d", size)
		}
		size = 0
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		progress(size, total)
		return nil
	}
	watch := time.AfterFunc(d.idle, func() { cancel(fmt.Errorf("nothing arrived for %v", d.idle)) })
	defer watch.Stop()
	progress(size, total)
	n, err := io.Copy(&sink{f, size, total, progress}, &watched{resp.Body, watch, d.idle})
	var local *fileError
	switch {
	case errors.As(err, &local):
		return err
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the connection broke after %d bytes: %w", size+n, err)
	case total >= 0 && size+n != total:
		return fmt.Errorf("%d bytes arrived of %d", size+n, total)
	}
	return nil
}

func seekStart(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

func (d *downloader) request(ctx context.Context, url string, from int64) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "attnbudget")
	// Ranges count the bytes of what is sent: it must be the file itself.
	req.Header.Set("Accept-Encoding", "identity")
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	if d.token != "" && req.URL.Scheme == "https" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	return req, nil
}

// place is where the body of an answer belongs in the file, of which size bytes are there, and how long the whole file is
// (-1 if the server does not say). A start other than size means to begin again from 0.
func place(resp *http.Response, size int64) (start, total int64, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, resp.ContentLength, nil
	case http.StatusPartialContent:
		span, length, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes "), "/")
		first, _, _ := strings.Cut(span, "-")
		if start, err = strconv.ParseInt(first, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("the server's Content-Range is %q, expected bytes FIRST-LAST/LENGTH", resp.Header.Get("Content-Range"))
		}
		if total, err = strconv.ParseInt(length, 10, 64); err != nil {
			total = -1
		}
		if start != size {
			start = -1
		}
		return start, total, nil
	case http.StatusRequestedRangeNotSatisfiable:
		length := strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes */")
		if total, err = strconv.ParseInt(length, 10, 64); err == nil && total == size {
			return size, total, nil
		}
		return -1, -1, nil
	}
	e := &StatusError{URL: resp.Request.URL.Redacted(), Status: resp.StatusCode}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	return 0, 0, e
}

// fileError is a failure on this side: another attempt would not help.
type fileError struct{ err error }

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// sink writes to the file and says how far it is.
type sink struct {
	f           *os.File
	done, total int64
	progress    func(done, total int64)
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.f.Write(p)
	if err != nil {
		return n, &fileError{err}
	}
	s.done += int64(n)
	s.progress(s.done, s.total)
	return n, nil
}

// watched puts the watchdog off whenever something arrives.
type watched struct {
	body  io.Reader
	watch *time.Timer
	idle  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.watch.Reset(w.idle)
	}
	return n, err
}
