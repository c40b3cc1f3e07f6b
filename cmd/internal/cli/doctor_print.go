// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"text/tabwriter"
)

func (r *doctorReport) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	// Sections are flushed one by one, so that a long name in one does not widen the others.
	section := func(title string) {
		w.Flush()
		fmt.Fprintf(out, "%s\n", title)
	}

	section("collage")
	line("version", "%s (%s, %s/%s)", r.Collage.Version, r.Collage.Go, r.Collage.OS, r.Collage.Arch)
	if r.Python != nil {
		line("Python", "%s, %s", r.Python.Version, r.Python.Executable)
		line("packages", "%s", orNone(versionList(r.Python.Versions)))
	} else {
		line("Python", "none that works")
	}

	section("TVM")
	switch {
	case r.TVM != nil:
		r.TVM.print(line)
	case r.Python != nil && r.Python.TVM != "":
		line("package", "%s (not loaded)", r.Python.TVM)
	default:
		line("package", "none")
	}

	section("runtime plug-ins")
	for _, p := range r.Plugins {
		if p.Reason != "" {
			line(p.Name, "not usable")
			continue
		}
		line(p.Name, "%s", joinNonEmpty(versionList(p.Libraries), p.Path))
	}

	section("backends")
	for _, b := range r.Backends {
		if !b.Probe.Usable {
			line(b.Name, "not usable: %s", b.Probe.Reason)
			continue
		}
		takes := "every operator"
		switch {
		case b.Patterns > 0:
			takes = fmt.Sprintf("%d patterns", b.Patterns)
		case b.Device != byoc.Host:
			takes = "what the device can run"
		}
		line(b.Name, "usable, takes %s; %s", takes, libraryText(b.Probe))
	}

	if len(r.Devices) > 0 {
		section("devices")
		for _, d := range r.Devices {
			used := "not used"
			if d.Used {
				used = "used"
			}
			line(fmt.Sprintf("%s %d", d.Kind, d.Number), "%s, %s, driver %s, %d units, %s, %s", d.Name, d.Version, d.Driver,
				d.Units, sizeText(d.Memory), used)
		}
	}

	section("machine")
	r.printMachine(line)

	section("cost store")
	switch {
	case r.Store.Problem != "":
		line(r.Store.Path, "not usable: %s", r.Store.Problem)
	case r.Store.Bytes == 0:
		line(r.Store.Path, "not there yet (the first compile makes it)")
	default:
		line(r.Store.Path, "%d costs, %s", r.Store.Costs, sizeText(r.Store.Bytes))
	}
	w.Flush()

	fmt.Fprintln(out)
	for _, p := range r.Problems {
		fmt.Fprintf(out, "%s: %s\n  remedy: %s\n", p.Severity, p.Problem, p.Remedy)
	}
	switch {
	case !r.Ready:
	case slices.ContainsFunc(r.Problems, func(p doctorProblem) bool { return p.Severity != "note" }):
		fmt.Fprintln(out, "Models can be compiled here.")
	default:
		fmt.Fprintln(out, "Nothing that is needed is missing: models can be compiled here.")
	}
}

func (t *tvmInfo) print(line func(name, format string, args ...any)) {
	version := t.Version
	if version == "" {
		version = "of unknown version"
	}
	if len(t.Commit) > 12 {
		version += " (commit " + t.Commit[:12] + ")"
	}
	line("version", "%s", version)
	line("library", "%s", t.Library)
	if t.LLVM != "" {
		line("LLVM", "%s", joinNonEmpty(t.LLVM, prefixed("this processor is ", t.CPU)))
	} else {
		line("LLVM", "none")
	}
	line("has", "%s", orNone(strings.Join(interesting(t.On), ", ")))
	line("has not", "%s", orNone(strings.Join(interesting(t.Off), ", ")))
}

// interesting are the switches that stand for something a network could use; the whole list is in --json.
func interesting(switches []string) []string {
	wanted := []string{"AOT_EXECUTOR", "BLAS", "CUBLAS", "CUDA", "CUDNN", "CUTLASS", "DNNL", "GRAPH_EXECUTOR", "LLVM",
		"METAL",
		"MKL", "OPENCL", "OPENMP", "PROFILER", "ROCM", "RPC", "TENSORRT_CODEGEN", "TENSORRT_RUNTIME", "VULKAN"}
	var names []string
	for _, name := range switches {
		if slices.Contains(wanted, name) {
			names = append(names, name)
		}
	}
	return names
}

func (r *doctorReport) printMachine(line func(name, format string, args ...any)) {
	m := r.Machine
	line("processor", "%s", orNone(m.Processor))
	line("features", "%s", orNone(strings.Join(m.Features, ", ")))
	line("precision", "%s", r.precisionText())
	threads := fmt.Sprintf("%d processors", m.Processors)
	if m.Processors == 1 {
		threads = "1 processor"
	}
	if m.Quota > 0 {
		threads += fmt.Sprintf(", of which this container may use %.3g", m.Quota)
	}
	line("threads", "%s", threads)
	var set []string
	for _, name := range slices.Sorted(maps.Keys(m.Environment)) {
		set = append(set, name+"="+m.Environment[name])
	}
	line("settings", "%s", orNone(strings.Join(set, ", ")))
	if m.MemoryBytes > 0 {
		line("memory", "%s", sizeText(m.MemoryBytes))
	}
}

// precisionText says for which narrow types this processor has instructions, and which backends use them.
func (r *doctorReport) precisionText() string {
	if len(r.Precisions) == 0 {
		return "f32 alone: this processor has no instructions for products in bf16 or int8, or the environment forbids them"
	}
	var texts []string
	for _, p := range r.Precisions {
		users := "no backend here"
		if len(p.Backends) > 0 {
			users = strings.Join(p.Backends, ", ")
		}
		texts = append(texts, fmt.Sprintf("%s by %s", p.Precision, users))
	}
	return "f32, and where --precision allows it " + strings.Join(texts, "; ")
}

func versionList(versions map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		texts = append(texts, name+" "+versions[name])
	}
	return strings.Join(texts, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func joinNonEmpty(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), ", ")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
