// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
)

// Compiler is the Compiler attribute of the regions of all backends of such devices, Device the kind of device.
const (
	Compiler = "collage_opencl"
	Device   = "opencl"
)

// plugin is the file of the runtime, and its engine.
const plugin = "opencl"

// remote is what the backends of this package have in common: the device, and regions that any of them stand in
// together.
type remote struct {
	byoc.KnownCopies
	device atomic.Pointer[device]
}

func (*remote) Compiler() string    { return Compiler }
func (*remote) TakesAnything() bool { return false }

// MergesRegions is true: within a region nothing is copied between the host and the device.
func (*remote) MergesRegions() bool { return true }

// SharesCompiler is true: what a library computes and what TVM's kernels do with it stay on the device.
func (*remote) SharesCompiler() bool { return true }

// Device implements byoc.Remote.
func (*remote) Device() string { return Device }

// Memory implements byoc.Remote.
func (r *remote) Memory() int64 {
	if d := r.device.Load(); d != nil {
		return d.Memory
	}
	return 0
}

// Hardware implements byoc.Remote.
func (r *remote) Hardware() string {
	if d := r.device.Load(); d != nil {
		return strings.Join([]string{d.Name, d.Version, d.Driver}, ", ")
	}
	return ""
}

// measures is the plug-in's packed function that measures copies.
const measures = "collage.runtime.opencl.MeasureCopies"

// MeasureCopies implements byoc.Remote.
func (*remote) MeasureCopies(bytes int64) (to, from []float64, err error) {
	value, err := bridge.Global(measures, bytes)
	if err != nil {
		return nil, nil, err
	}
	text, err := value.Str()
	if err != nil {
		return nil, nil, err
	}
	var took struct{ To, From []float64 }
	if err := json.Unmarshal([]byte(text), &took); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", measures, err)
	}
	return took.To, took.From, nil
}

// Libraries implements byoc.Linker.
func (*remote) Libraries() []string { return []string{plugin} }

// Install makes relay.ext.collage_opencl available in this process, the calls of CLBlast within its regions, and TVM's
// code generator for OpenCL complete. The error says so where there is no device: a driver's file does not mean that
// there is one.
func (r *remote) Install() error {
	if err := region.Register(Compiler, plugin, plugin, emit); err != nil {
		return err
	}
	if err := registerCalls(); err != nil {
		return err
	}
	d, err := chosen()
	if err != nil {
		return err
	}
	r.device.Store(d)
	return completeCodeGenerator()
}

// device is what the plug-in says of a device (byoc/runtime/opencl_devices.h).
type device struct {
	Name    string
	Version string
	Driver  string
	Memory  int64 `json:"memory_bytes"`
}

// chosen is the device that regions run on.
func chosen() (*device, error) {
	at, err := bridge.Global("collage.runtime.opencl.Device")
	if err != nil {
		return nil, err
	}
	index, err := at.Int()
	if err != nil {
		return nil, err
	}
	found, err := bridge.Global("collage.runtime.opencl.Devices")
	if err != nil {
		return nil, err
	}
	text, err := found.Str()
	if err != nil {
		return nil, err
	}
	var devices []device
	if err := json.Unmarshal([]byte(text), &devices); err != nil {
		return nil, fmt.Errorf("what the plug-in says of the devices is not readable: %w", err)
	}
	return &devices[index], nil
}
