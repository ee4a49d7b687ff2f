package bench

import (
	"runtime/debug"
	"strings"

	"attnbudget/engine/gguf"

	"github.com/shirou/gopsutil/v4/cpu"
)

// cpuName is the processor's model name, as llama-bench's cpu_info; empty where the system does not tell.
func cpuName() string {
	infos, err := cpu.Info()
	if err != nil || len(infos) == 0 {
		return ""
	}
	return strings.TrimSpace(infos[0].ModelName)
}

// buildCommit is the short commit this binary was built from, "unknown" outside a checkout.
func buildCommit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				return s.Value[:7]
			}
		}
	}
	return "unknown"
}

// cacheTypeName is a cache type as flags and output name it: lower case.
func cacheTypeName(t gguf.Type) string { return strings.ToLower(t.String()) }
