package campaigns

import (
	"errors"
	"fmt"
	"strings"

	"attnbudget/campaigns/fetch"
	"attnbudget/engine/gguf"
)

// fetched is the source of a model that is fetched into the cache; nil for a file and for a builtin model.
func (c *Campaign) fetched(m Source) (fetch.Source, error) {
	if rest, is := strings.CutPrefix(m.Path, fetch.HubPrefix); is {
		return fetch.ParseHub(rest, string(m.SHA256))
	}
	if rest, is := strings.CutPrefix(m.Path, fetch.SynthPrefix); is {
		return fetch.ParseSynth(rest, c.synthFormat())
	}
	return nil, nil
}

// synthFormat is the format of a synthetic model that says none: the campaign's, if it has just one; of several all but one
// must be quantised, which only a model in floating point can be.
func (c *Campaign) synthFormat() string {
	if len(c.Formats) == 1 {
		return c.Formats[0]
	}
	return gguf.F16.String()
}

func (c *Campaign) checkFetched(m Source, p path) {
	if strings.HasPrefix(m.Path, fetch.HubPrefix) && m.SHA256 == "" {
		c.doc.wrong(p.key("path"), fmt.Sprintf("write {path: %s, sha256: DIGITS}; the file's page on the hub shows it", m.Path),
			"a download needs its sha256: without it, another file under the same name would go unnoticed")
	}
	if _, err := c.fetched(m); err != nil {
		c.doc.wrong(p.key("path"), "write hf:OWNER/REPO/FILE or synth:SHAPE:layers=N:format=FORMAT:seed=N", "%s: %v", m.Path, err)
	}
}

// noteMissing says that a model has to be fetched first.
func (c *Campaign) noteMissing(p path, s fetch.Source) {
	size := ""
	if n := s.Bytes(); n >= 0 {
		size = fmt.Sprintf(" (%s)", Size(n))
	}
	before := len(c.doc.mistakes)
	c.doc.wrong(p.key("path"), "run-campaign fetch "+c.Path+" puts it there", "%s is not in the cache%s", s, size)
	for _, m := range c.doc.mistakes[before:] {
		m.missing = s
	}
}

// Missing returns the models that have to be fetched before a campaign can be loaded, each once, if nothing else is wrong
// with it; err is Load's.
func Missing(err error) []fetch.Source {
	var mistakes Mistakes
	if !errors.As(err, &mistakes) {
		return nil
	}
	var out []fetch.Source
	seen := map[string]bool{}
	for _, m := range mistakes {
		if m.missing == nil {
			return nil
		}
		if name := m.missing.String(); !seen[name] {
			seen[name] = true
			out = append(out, m.missing)
		}
	}
	return out
}
