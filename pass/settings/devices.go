// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
)

// DefaultDevices are the devices that parts may run on where nobody says so.
var DefaultDevices = []string{byoc.Host}

// WithDevices are the backends that are named, and behind them, in the order of the devices, those that run on one of
// the devices and can be used here; of a device for which none can be used the first, so that whoever asked is told why
// not. The error (*OptionError) names a device on which no backend runs.
func WithDevices(names, devices []string) ([]string, error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, err
	}
	all := slices.Clone(names)
	for _, device := range devices {
		if device = strings.TrimSpace(device); device == byoc.Host {
			continue
		}
		known, runs, usable := []string{byoc.Host}, []string(nil), []string(nil)
		for _, b := range byoc.All() {
			is := byoc.DeviceOf(b)
			known = append(known, is)
			if is != device {
				continue
			}
			runs = append(runs, b.Name())
			if b.Probe().Usable || byoc.DeclarationOf(b) != nil {
				usable = append(usable, b.Name())
			}
		}
		switch {
		case len(runs) == 0:
			slices.Sort(known)
			return nil, &OptionError{"devices", fmt.Sprintf("has %q, on which no backend runs (known: %s)", device,
				strings.Join(slices.Compact(known), ", "))}
		case len(usable) == 0:
			usable = runs[:1]
		}
		for _, name := range usable {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all, nil
}
