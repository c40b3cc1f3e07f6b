// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
)

// doctorDevice is a device beside the processor.
type doctorDevice struct {
	// Kind is what --device calls it.
	Kind string `json:"kind"`
	// Number is its place among the devices of this kind, and Used says that regions run on it.
	Number int  `json:"number"`
	Used   bool `json:"used"`
	// Name, Version and Driver are what its driver says.
	Name    string `json:"name"`
	Version string `json:"version"`
	Driver  string `json:"driver"`
	// Units is how many compute units it has.
	Units  int   `json:"units"`
	Memory int64 `json:"memory_bytes"`
	// Backends are those that run on it here.
	Backends []string `json:"backends"`
}

// lookAtDevices asks the plug-ins of devices, where TVM is in the process and a driver is here.
func (r *doctorReport) lookAtDevices() {
	r.Devices = []doctorDevice{}
	runs, plugins := map[string][]string{}, map[string]string{}
	for _, b := range byoc.All() {
		kind := byoc.DeviceOf(b)
		if kind == byoc.Host || !b.Probe().Usable {
			continue
		}
		runs[kind] = append(runs[kind], b.Name())
		if files, err := byoc.Libraries(b); err == nil && len(files) > 0 {
			plugins[kind] = files[0]
		}
	}
	kinds := make([]string, 0, len(runs))
	for kind := range runs {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		found, err := devicesOf(kind, plugins[kind])
		if err != nil {
			r.problem("warning", fmt.Sprintf("there is no device for %s: %s", kind, reasonOf(err)),
				"install the device's driver, or leave --device "+kind+" out")
		}
		used, err := usedDevice(kind, len(found))
		if err != nil {
			r.problem("warning", reasonOf(err), "name one that is here, or none for the first")
		}
		for number, device := range found {
			device.Kind, device.Backends, device.Number, device.Used = kind, runs[kind], number, number == used
			r.Devices = append(r.Devices, device)
		}
	}
}

// devicesOf asks the plug-in of a kind of device; nothing where no TVM is in the process.
func devicesOf(kind, plugin string) (devices []doctorDevice, err error) {
	if !bridge.Loaded() {
		return nil, nil
	}
	if _, err := byoc.OpenPlugin(plugin); err != nil {
		return nil, err
	}
	value, err := bridge.Global("collage.runtime." + kind + ".Devices")
	if err != nil {
		return nil, err
	}
	text, err := value.Str()
	if err != nil {
		return nil, err
	}
	return devices, json.Unmarshal([]byte(text), &devices)
}

// usedDevice is the number of the device on which regions run; -1 where there is none.
func usedDevice(kind string, count int) (int, error) {
	if count == 0 {
		return -1, nil
	}
	value, err := bridge.Global("collage.runtime." + kind + ".Device")
	if err != nil {
		return -1, err
	}
	number, err := value.Int()
	return int(number), err
}

// reasonOf is the first line of an error of a plug-in's, as people read it.
func reasonOf(err error) string {
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(reason, "TVMError: ")
}
