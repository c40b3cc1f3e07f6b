// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/npz"
)

// Model is an exported model that is loaded and can be called. It is not safe for concurrent use.
type Model struct {
	Inputs, Outputs []TensorInfo
	// Plugins are the runtime plug-ins that the model needs: the path of those that were loaded from this
	// installation, the bare name of those that were left to the dynamic loader.
	Plugins []string

	executor                           *bridge.Module
	setInput, run, getInput, getOutput *bridge.Function
	// onMachine says that the executor is TVM's virtual machine.
	onMachine bool
}

// Load loads a model on the CPU. TVM's runtime must be loaded (bridge.Load). The libraries stay in the process
// until it ends.
func Load(files *Files) (*Model, error) {
	m := &Model{}
	var err error
	if m.Plugins, err = Prepare(files.Library); err != nil {
		return nil, err
	}
	library, err := bridge.LoadModuleFromFile(files.Library, "")
	if err != nil {
		return nil, m.explainLoadError(err)
	}
	if library.TypeKey() == machineType {
		return m, m.startMachine(library, files.Library)
	}
	params, graph, err := m.createExecutor(library, files)
	if err != nil {
		return nil, err
	}
	for name, function := range map[string]**bridge.Function{
		"set_input": &m.setInput, "run": &m.run, "get_input": &m.getInput, "get_output": &m.getOutput,
	} {
		if *function, err = m.executor.GetFunction(name, false); err != nil {
			return nil, fmt.Errorf("the model's executor has no function %s: %w", name, err)
		}
	}
	return m, m.describe(graph, params)
}

// OnMachine says that TVM's virtual machine runs it.
func (m *Model) OnMachine() bool { return m.onMachine }

// explainLoadError says what to do where the dynamic loader or TVM missed a plug-in.
func (m *Model) explainLoadError(err error) error {
	text := err.Error()
	if strings.Contains(text, pluginPrefix) && strings.Contains(text, "cannot open shared object file") {
		return fmt.Errorf("the model needs the runtime plug-ins %s, and this installation does not have them all; "+
			"name their "+
			"folder in %s", strings.Join(m.PluginNames(), ", "), byoc.PluginDirEnv)
	}
	return fmt.Errorf("the model does not load: %w", err)
}

// createExecutor makes the graph executor. It gives the executor's graph and the names of its parameters.
func (m *Model) createExecutor(library *bridge.Module, files *Files) (params map[string]bool, graph string, err error) {
	if files.Graph == "" {
		return m.createFromFactory(library)
	}
	content, err := os.ReadFile(files.Graph)
	if err != nil {
		return nil, "", err
	}
	weights, err := os.ReadFile(files.Params)
	if err != nil {
		return nil, "", err
	}
	if open, ok := bridge.LookupGlobalFunction(openParts); ok {
		return m.createFromParts(open, library, string(content), weights)
	}
	cpu := bridge.CPU()
	created, err := bridge.Global("tvm.graph_executor.create", string(content), library, int(cpu.Type), int(cpu.ID))
	if err != nil {
		return nil, "", notStarted(err)
	}
	if m.executor, err = created.Module(); err != nil {
		return nil, "", err
	}
	if _, err := m.call("load_params", weights); err != nil {
		return nil, "", fmt.Errorf("the model's weights (mod.params) do not load: %w", err)
	}
	// What is not a parameter is an input: the executor knows after load_params.
	info, err := m.call("get_input_info")
	if err != nil {
		return nil, "", err
	}
	inputs, err := mapNames(info, "shape")
	if err != nil {
		return nil, "", err
	}
	tensors, err := parseGraph(content)
	if err != nil {
		return nil, "", err
	}
	params = map[string]bool{}
	for _, name := range tensors {
		params[name] = !inputs[name]
	}
	return params, string(content), nil
}

// What the runtime plug-ins have to open models so that copies of one share their weights
// (byoc/runtime/shared_parameters.cc). A model that came without plug-ins is opened as TVM does.
const (
	openFactory = "collage.runtime.Open"
	openParts   = "collage.runtime.OpenParts"
)

// createFromParts makes the executor of a graph, a library and weights as TVM saves them, by openParts.
func (m *Model) createFromParts(open *bridge.Function, library *bridge.Module, graph string, weights []byte) (
	params map[string]bool, text string, err error) {
	arrays, err := bridge.Global("runtime.LoadParams", weights)
	if err != nil {
		return nil, "", fmt.Errorf("the model's weights (mod.params) do not load: %w", err)
	}
	if params, err = mapNames(arrays, ""); err != nil {
		return nil, "", err
	}
	cpu := bridge.CPU()
	created, err := open.Invoke(graph, library, arrays, int(cpu.Type), int(cpu.ID))
	if err != nil {
		return nil, "", notStarted(err)
	}
	m.executor, err = created.Module()
	return params, graph, err
}

// notStarted says of an error of TVM's why there is no executor: a region that cannot be made ready says so by itself
// (byoc/runtime/region_module.cc), everything else is the graph's fault.
func notStarted(err error) error {
	if strings.Contains(err.Error(), "the region ") {
		return fmt.Errorf("the model does not start: %w", err)
	}
	return fmt.Errorf("the model's graph (mod.json) is not one of TVM's graph executor: %w", err)
}

func (m *Model) createFromFactory(library *bridge.Module) (params map[string]bool, graph string, err error) {
	if key := library.TypeKey(); key != "GraphExecutorFactory" {
		return nil, "", fmt.Errorf("the model is not for TVM's graph executor (its library begins with a module of "+
			"type %q); "+
			"compile it with collage compile, or with tvmc's --executor graph", key)
	}
	create, err := library.GetFunction("default", false)
	if err != nil {
		return nil, "", fmt.Errorf("the model has no network named \"default\": %w", err)
	}
	var created bridge.Value
	if open, ok := bridge.LookupGlobalFunction(openFactory); ok {
		cpu := bridge.CPU()
		created, err = open.Invoke(library, int(cpu.Type), int(cpu.ID))
	} else {
		created, err = create.Invoke(bridge.CPU())
	}
	if err != nil {
		return nil, "", fmt.Errorf("the model does not start: %w", err)
	}
	if m.executor, err = created.Module(); err != nil {
		return nil, "", err
	}
	getGraph, err := library.GetFunction("get_graph_json", false)
	if err != nil {
		return nil, "", err
	}
	value, err := getGraph.Invoke()
	if err != nil {
		return nil, "", err
	}
	if graph, err = value.Str(); err != nil {
		return nil, "", err
	}
	getParams, err := library.GetFunction("get_graph_params", false)
	if err != nil {
		return nil, "", err
	}
	if value, err = getParams.Invoke(); err != nil {
		return nil, "", err
	}
	params, err = mapNames(value, "")
	return params, graph, err
}

// call calls a function of the executor by its name.
func (m *Model) call(name string, args ...any) (bridge.Value, error) {
	function, err := m.executor.GetFunction(name, false)
	if err != nil {
		return bridge.Value{}, err
	}
	return function.Invoke(args...)
}

// describe fills Inputs and Outputs: the order is the graph's, shapes and types are those of the executor's own
// tensors.
func (m *Model) describe(graph string, params map[string]bool) error {
	names, err := parseGraph([]byte(graph))
	if err != nil {
		return err
	}
	for _, name := range names {
		if params[name] {
			continue
		}
		info, err := tensorInfo(m.getInput, name, name)
		if err != nil {
			return fmt.Errorf("the model's input %q: %w", name, err)
		}
		m.Inputs = append(m.Inputs, info)
	}
	value, err := m.call("get_num_outputs")
	if err != nil {
		return err
	}
	count, err := value.Int()
	if err != nil {
		return err
	}
	for i := range count {
		info, err := tensorInfo(m.getOutput, fmt.Sprintf("output_%d", i), i)
		if err != nil {
			return fmt.Errorf("the model's output %d: %w", i, err)
		}
		m.Outputs = append(m.Outputs, info)
	}
	return nil
}

func tensorInfo(get *bridge.Function, name string, which any) (TensorInfo, error) {
	value, err := get.Invoke(which)
	if err != nil {
		return TensorInfo{}, err
	}
	array, err := value.NDArray()
	if err != nil {
		return TensorInfo{}, err
	}
	defer array.Release()
	return TensorInfo{Name: name, Shape: array.Shape(), DType: array.DType().String()}, nil
}

// SetInputs copies the arrays into the model. They must be what the model takes (CheckInputs).
func (m *Model) SetInputs(arrays []npz.Array) error {
	if err := CheckInputs(m.Inputs, arrays); err != nil {
		return err
	}
	if m.onMachine {
		return m.setOnMachine(arrays)
	}
	for i := range arrays {
		tensor, err := tensorOf(&arrays[i])
		if err == nil {
			_, err = m.setInput.Invoke(arrays[i].Name, tensor)
			tensor.Release()
		}
		if err != nil {
			return fmt.Errorf("setting the input %q: %w", arrays[i].Name, err)
		}
	}
	return nil
}

// tensorOf is an array in TVM's memory; the caller's.
func tensorOf(a *npz.Array) (*bridge.NDArray, error) {
	dtype, err := bridge.ParseDataType(a.DType)
	if err != nil {
		return nil, err
	}
	tensor, err := bridge.Empty(a.Shape, dtype, bridge.CPU())
	if err != nil {
		return nil, err
	}
	if err := tensor.CopyFromBytes(a.Data); err != nil {
		tensor.Release()
		return nil, err
	}
	return tensor, nil
}

// Time calls the model warmup+repeat times and times the last repeat calls. It ends early, with the context's
// error, between two calls.
func (m *Model) Time(ctx context.Context, repeat, warmup int) (*Timings, error) {
	samples := make([]time.Duration, 0, repeat)
	var arguments []any
	if m.onMachine {
		arguments = []any{machineMain}
	}
	for i := range warmup + repeat {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err := m.run.Invoke(arguments...); err != nil {
			return nil, fmt.Errorf("the model failed: %w", err)
		}
		if i >= warmup {
			samples = append(samples, time.Since(start))
		}
	}
	return newTimings(samples, warmup), nil
}

// GetOutputs copies the outputs of the last call.
func (m *Model) GetOutputs() ([]npz.Array, error) {
	arrays := make([]npz.Array, len(m.Outputs))
	for i, out := range m.Outputs {
		value, err := m.getOutput.Invoke(i)
		if err != nil {
			return nil, err
		}
		tensor, err := value.NDArray()
		if err != nil {
			return nil, err
		}
		data, err := tensor.Bytes()
		shape := tensor.Shape()
		tensor.Release()
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", out.Name, err)
		}
		arrays[i] = npz.Array{Name: out.Name, DType: out.DType, Shape: shape, Data: data}
	}
	return arrays, nil
}

// Produced are the outputs of the last call: of the shapes that came out.
func (m *Model) Produced() ([]TensorInfo, error) {
	produced := make([]TensorInfo, len(m.Outputs))
	for i, out := range m.Outputs {
		var err error
		if produced[i], err = tensorInfo(m.getOutput, out.Name, i); err != nil {
			return nil, fmt.Errorf("getting %s: %w", out.Name, err)
		}
	}
	return produced, nil
}

// mapNames are the keys of a map, or of the map that is under a key of it.
func mapNames(value bridge.Value, under string) (map[string]bool, error) {
	object, err := value.Object()
	if err != nil {
		return nil, err
	}
	entries, err := object.Entries()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, entry := range entries {
		key, err := entry.Key.Str()
		if err != nil {
			return nil, err
		}
		if under == "" {
			names[key] = true
		} else if key == under {
			return mapNames(entry.Value, "")
		}
	}
	if under != "" {
		return nil, errors.New("the executor does not say which inputs it has")
	}
	return names, nil
}

// PluginNames are the file names of the plug-ins.
func (m *Model) PluginNames() []string {
	names := make([]string, len(m.Plugins))
	for i, p := range m.Plugins {
		names[i] = filepath.Base(p)
	}
	return names
}
