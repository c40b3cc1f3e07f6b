// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/npz"
)

// machineType is the type of the module that a library for TVM's virtual machine begins with, machineMain the function
// of it that is run; freed and pooled are TVM's names for memory that is given back when it is needed no more, and that
// is kept for tensors of the same size. Where sizes are open there would be more of that with each new one, and what is
// given back stays with the process (keepFreed).
const (
	machineType = "VMExecutable"
	machineMain = "main"
	freed       = 1
	pooled      = 2
	// keepFreed is the packed function that sees to that (byoc/runtime/kept_memory.cc); models of before have none.
	keepFreed = "collage.runtime.KeepFreedMemory"
)

// signature is what python/collage/virtual_machine.py says of a model, in the order in which it takes and gives.
type signature struct {
	Inputs []struct {
		Name   string      `json:"name"`
		DType  string      `json:"dtype"`
		Shape  []int64     `json:"shape"`
		Tried  []int64     `json:"tried"`
		Names  []string    `json:"names"`
		Domain []*[2]int64 `json:"domain"`
	} `json:"inputs"`
	Outputs []struct {
		DType string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	} `json:"outputs"`
}

// startMachine makes a virtual machine for a library that was loaded from path.
func (m *Model) startMachine(library *bridge.Module, path string) error {
	demands, err := Needed(path)
	if err != nil {
		return err
	}
	if demands.Signature == "" {
		return errors.New("the model is for TVM's virtual machine, and does not say which inputs it takes: compile it with " +
			"collage compile")
	}
	var says signature
	if err := json.Unmarshal([]byte(demands.Signature), &says); err != nil {
		return fmt.Errorf("what the model says of its inputs is damaged: %w", err)
	}
	for _, in := range says.Inputs {
		info := TensorInfo{Name: in.Name, Shape: in.Shape, DType: in.DType}
		for i, size := range in.Shape {
			if size >= 0 {
				continue
			}
			if len(in.Tried) != len(in.Shape) || in.Tried[i] < 1 {
				return fmt.Errorf("what the model says of its input %q is damaged", in.Name)
			}
			info.Tried, info.Names, info.Domain = in.Tried, in.Names, in.Domain
		}
		if info.Names != nil && len(info.Names) != len(in.Shape) || info.Domain != nil && len(info.Domain) != len(in.Shape) {
			return fmt.Errorf("what the model says of its input %q is damaged", in.Name)
		}
		m.Inputs = append(m.Inputs, info)
	}
	for i, out := range says.Outputs {
		m.Outputs = append(m.Outputs, TensorInfo{Name: fmt.Sprintf("output_%d", i), Shape: out.Shape, DType: out.DType})
	}
	create, err := library.GetFunction("vm_load_executable", false)
	if err != nil {
		return err
	}
	created, err := create.Invoke()
	if err != nil {
		return fmt.Errorf("the model does not start: %w", err)
	}
	if m.executor, err = created.Module(); err != nil {
		return err
	}
	m.onMachine = true
	for name, function := range map[string]**bridge.Function{
		"set_input": &m.setInput, "invoke_stateful": &m.run, "get_output": &m.getOutput,
	} {
		if *function, err = m.executor.GetFunction(name, false); err != nil {
			return fmt.Errorf("the virtual machine has no function %s: %w", name, err)
		}
	}
	cpu, memory := bridge.CPU(), pooled
	if slices.ContainsFunc(m.Inputs, func(in TensorInfo) bool { return in.Tried != nil }) {
		memory = freed
		if keep, there := bridge.LookupGlobalFunction(keepFreed); there {
			defer keep.Release()
			if _, err := keep.Invoke(); err != nil {
				return err
			}
		}
	}
	if _, err := m.call("init", int(cpu.Type), int(cpu.ID), memory); err != nil {
		return fmt.Errorf("the model does not start: %w", err)
	}
	return nil
}

// setOnMachine sets all inputs, which CheckInputs has seen.
func (m *Model) setOnMachine(arrays []npz.Array) error {
	arguments := []any{machineMain}
	for _, in := range m.Inputs {
		for i := range arrays {
			if arrays[i].Name != in.Name {
				continue
			}
			tensor, err := tensorOf(&arrays[i])
			if err != nil {
				return fmt.Errorf("setting the input %q: %w", in.Name, err)
			}
			defer tensor.Release()
			arguments = append(arguments, tensor)
		}
	}
	if _, err := m.setInput.Invoke(arguments...); err != nil {
		return fmt.Errorf("setting the inputs: %w", err)
	}
	return nil
}
