package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"attnbudget/results"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// Machine describes this machine and the running binary. What the system does not tell is left empty; only a binary
// that cannot be read is an error, because two versions of it could then not be told apart.
func Machine(engineVersion, kernels string) (results.Environment, error) {
	e := results.Environment{
		Schema: results.EnvironmentSchema, Arch: runtime.GOARCH, Threads: runtime.NumCPU(), Usable: runtime.GOMAXPROCS(0),
		Governor: governors("/sys/devices/system/cpu"), Boost: boost("/sys/devices/system/cpu"),
		GoVersion: runtime.Version(), Commit: commit(), EngineVersion: engineVersion, Kernels: kernels,
	}
	if id, err := host.HostID(); err == nil {
		// The machine id itself is meant to stay private (machine-id(5)).
		sum := sha256.Sum256([]byte("attnbudget machine " + id))
		e.Machine = hex.EncodeToString(sum[:8])
	}
	if info, err := host.Info(); err == nil {
		e.OS = strings.TrimSpace(info.OS + " " + info.Platform + " " + info.PlatformVersion)
		e.Kernel = info.KernelVersion
	}
	if infos, err := cpu.Info(); err == nil && len(infos) > 0 {
		e.CPU, e.Microcode = infos[0].ModelName, infos[0].Microcode
		e.CPUFlags = slices.Sorted(slices.Values(infos[0].Flags))
	}
	if n, err := cpu.Counts(false); err == nil {
		e.Cores = n
	}
	if n, err := cpu.Counts(true); err == nil {
		e.Threads = n
	}
	if m, err := mem.VirtualMemory(); err == nil {
		// Rounded, because the kernel's own share differs a little from boot to boot.
		e.MemoryGiB = (m.Total + 1<<29) >> 30
	}
	var err error
	e.BinarySHA256, err = binarySHA256()
	return e, err
}

// MachineLoad tells what else the machine is doing now; what the system does not tell is 0.
func MachineLoad() results.Load {
	var l results.Load
	if avg, err := load.Avg(); err == nil {
		l.Load1, l.Load5 = avg.Load1, avg.Load5
	}
	if m, err := mem.VirtualMemory(); err == nil {
		l.AvailableMiB = m.Available >> 20
	}
	if misc, err := load.Misc(); err == nil {
		l.RunningProcs = uint64(max(misc.ProcsRunning, 0))
	}
	return l
}

// governors lists the different frequency governors of the CPUs under root, which is /sys/devices/system/cpu.
func governors(root string) string {
	paths, _ := filepath.Glob(filepath.Join(root, "cpu[0-9]*", "cpufreq", "scaling_governor"))
	var all []string
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			all = append(all, strings.TrimSpace(string(b)))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// boost says whether clocks above the nominal one are allowed, by either of Linux' two files for it.
func boost(root string) string {
	for _, f := range []struct{ name, on string }{{"cpufreq/boost", "1"}, {"intel_pstate/no_turbo", "0"}} {
		b, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			continue
		}
		if strings.TrimSpace(string(b)) == f.on {
			return "on"
		}
		return "off"
	}
	return ""
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, changes string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changes
}

// binarySHA256 is computed once: the file may be replaced while the process runs, the process does not change.
var binarySHA256 = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("fingerprint of the running binary: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("fingerprint of the running binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("fingerprint of the running binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})
