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
// the devices and can be used here; of a device for which none can be used the one that takes whole regions, else the
// first, so that whoever asked is told why not; of one that a file of costs describes (package declared) those that the file has. The error (*OptionError) names a device on which no backend runs.
func WithDevices(names, devices []string) ([]string, error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, err
	}
	all := slices.Clone(names)
	for _, device := range devices {
		if device = strings.TrimSpace(device); device == byoc.Host {
			continue
		}
		known, usable, declared := []string{byoc.Host}, []string(nil), []string(nil)
		var foremost byoc.Backend
		for _, b := range byoc.All() {
			is := byoc.DeviceOf(b)
			known = append(known, is)
			if is != device {
				continue
			}
			if foremost == nil || b.Level() == byoc.GraphLevel && foremost.Level() != byoc.GraphLevel {
				foremost = b
			}
			if byoc.DeclarationOf(b) != nil {
				declared = append(declared, b.Name())
			} else if b.Probe().Usable {
				usable = append(usable, b.Name())
			}
		}
		switch {
		case foremost == nil:
			slices.Sort(known)
			return nil, &OptionError{"devices", fmt.Sprintf("has %q, on which no backend runs (known: %s)", device,
				strings.Join(slices.Compact(known), ", "))}
		case len(declared) > 0:
			usable = declared
		case len(usable) == 0:
			usable = []string{foremost.Name()}
		}
		for _, name := range usable {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all, nil
}
