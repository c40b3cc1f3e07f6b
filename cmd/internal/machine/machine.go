// SPDX-License-Identifier: Apache-2.0

// Package machine says what a program can find out about the machine it runs on: the processor, how many
// threads it may use, and the settings that change that. Nothing comes in but the machine itself.
package machine

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"
)

// Info is what is known about a machine.
type Info struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Processor is the name that the processor gives itself; "" where it is not known.
	Processor string `json:"processor,omitempty"`
	// Features are the instruction sets that matter for networks and that the operating system supports too.
	Features []string `json:"features"`
	// Processors is how many this process may run on at once (its affinity mask).
	Processors int `json:"processors"`
	// Quota is how many processors' worth of time a container's limit leaves; 0 for no limit.
	Quota float64 `json:"quota,omitempty"`
	// MemoryBytes is the machine's memory; 0 where it is not known.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// Environment are the variables that are set and that change how many threads are used and how.
	Environment map[string]string `json:"environment"`
}

// threadVariables are read by oneTBB, TVM, OpenMP libraries or by our own runtime.
var threadVariables = []string{
	"COLLAGE_NUM_THREADS", "TVM_NUM_THREADS", "TVM_BIND_THREADS", "TVM_THREAD_POOL_SPIN_COUNT", "OMP_NUM_THREADS",
	"OMP_WAIT_POLICY", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS",
	"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
}

// Here looks at this machine.
func Here() Info {
	info := Info{OS: runtime.GOOS, Arch: runtime.GOARCH, Features: features(), Processors: runtime.NumCPU(),
		Environment: map[string]string{}}
	info.Processor = fieldOf("/proc/cpuinfo", "model name")
	if kilobytes, _, found := strings.Cut(fieldOf("/proc/meminfo", "MemTotal"), " "); found {
		n, _ := strconv.ParseInt(kilobytes, 10, 64)
		info.MemoryBytes = n * 1024
	}
	if limit, err := os.ReadFile("/sys/fs/cgroup/cpu.max"); err == nil {
		info.Quota = parseQuota(string(limit))
	}
	for _, name := range threadVariables {
		if value, set := os.LookupEnv(name); set {
			info.Environment[name] = value
		}
	}
	return info
}

func features() []string {
	x := cpu.X86
	all := []struct {
		name string
		has  bool
	}{
		{"sse4.2", x.HasSSE42}, {"avx", x.HasAVX}, {"avx2", x.HasAVX2}, {"fma", x.HasFMA}, {"f16c", x.HasF16C},
		{"avx_vnni", x.HasAVXVNNI},
		{"avx512f", x.HasAVX512F}, {"avx512bw", x.HasAVX512BW}, {"avx512dq", x.HasAVX512DQ},
		{"avx512vl", x.HasAVX512VL},
		{"avx512_vnni", x.HasAVX512VNNI}, {"avx512_bf16", x.HasAVX512BF16},
		{"amx_tile", x.HasAMXTile}, {"amx_int8", x.HasAMXInt8}, {"amx_bf16", x.HasAMXBF16},
		{"asimd", cpu.ARM64.HasASIMD}, {"asimddp", cpu.ARM64.HasASIMDDP}, {"sve", cpu.ARM64.HasSVE},
	}
	names := []string{}
	for _, f := range all {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}

// parseQuota reads "200000 100000" (microseconds in each period) or "max 100000".
func parseQuota(text string) float64 {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || period <= 0 {
		return 0
	}
	return quota / period
}

// fieldOf is the value of the first line "name : value" of a file of the kernel's.
func fieldOf(path, name string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
