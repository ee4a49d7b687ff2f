package parsers

import (
	"regexp"
	"strings"
)

// What builds before mid 2025 print instead, without cells:
//
//	llama_kv_cache_unified: KV self size  = 1952.00 MiB, K (f16):  976.00 MiB, V (f16):  976.00 MiB
//
// Forks with a joint latent cache print other parts; of those only the whole is read.

var (
	selfLine  = regexp.MustCompile(`KV self size\s*=\s*(\S+) MiB(.*)$`)
	selfParts = regexp.MustCompile(`^, K \((\w+)\):\s*(\S+) MiB, V \((\w+)\):\s*(\S+) MiB$`)
)

func matchKVSelf(t *text) bool { return t.matches(selfLine) }

func decodeKVSelf(t *text) ([]Measurement, error) {
	var found *cache
	split := false
	for _, l := range t.lines {
		m := selfLine.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		if found != nil {
			return nil, contradiction(l.n, "one KV self size line", "a second one")
		}
		c := cache{line: l.n, rounding: 0.005 * mib}
		size, err := number(l.n, "a size in MiB", m[1])
		if err != nil {
			return nil, err
		}
		c.bytes = size * mib
		if p := selfParts.FindStringSubmatch(m[2]); p != nil {
			if c.bytesK, err = number(l.n, "the size of K", p[2]); err != nil {
				return nil, err
			}
			if c.bytesV, err = number(l.n, "the size of V", p[4]); err != nil {
				return nil, err
			}
			c.bytesK, c.bytesV, c.typeK, c.typeV, split = c.bytesK*mib, c.bytesV*mib, p[1], p[3], true
			if !near(c.bytes, c.bytesK+c.bytesV, 3*c.rounding) {
				return nil, contradiction(l.n, "a size that is the sum of its parts", quote(l.text))
			}
		} else if !strings.Contains(m[2], "^") {
			return nil, truncated(l.n, "the sizes of K and V", quote(l.text))
		}
		found = &c
	}
	ms := cacheMeasurements([]cache{*found}, map[string]string{})
	if !split {
		delete(ms[0].Labels, "type_k")
		delete(ms[0].Labels, "type_v")
		return ms[:1], nil
	}
	return ms, nil
}
