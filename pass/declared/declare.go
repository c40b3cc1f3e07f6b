// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"errors"
	"maps"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/candidate"
)

// Declare has what the file says hold in this process, and registers the backends that nobody else has registered, until
// withdraw is called. On an error nothing of it holds. Errors are *Error, or say that another file has declared the same.
func (f *File) Declare() (withdraw func(), err error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, err
	}
	var undo []func()
	withdraw = func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
		undo = nil
	}
	meant := map[string]bool{} // devices
	for _, name := range slices.Sorted(maps.Keys(f.Backends)) {
		b, place := f.Backends[name], "backends."+name
		there, err := byoc.Lookup(name)
		if unknown := (*byoc.UnknownBackendError)(nil); err != nil && !errors.As(err, &unknown) {
			return nil, err
		}
		if there != nil {
			err = f.fits(there, &b, place)
		} else if there, err = f.register(name, &b, place); err == nil {
			undo = append(undo, func() { byoc.Remove(there) })
		}
		if err != nil {
			withdraw()
			return nil, err
		}
		meant[byoc.DeviceOf(there)] = true
		device := f.Devices[byoc.DeviceOf(there)]
		d := &byoc.Declaration{Source: f.source, Cost: b.costFunction(candidate.RegisteredPattern), Memory: device.Memory,
			Copies: device.costs()}
		if err := byoc.Declare(name, d); err != nil {
			withdraw()
			return nil, err
		}
		undo = append(undo, func() { byoc.Withdraw(name, d) })
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Devices)) {
		if !meant[kind] {
			withdraw()
			return nil, &Error{f.name, "devices." + kind, "no backend of the file runs there"}
		}
	}
	return withdraw, nil
}

// fits says what of the file does not go with a backend that is registered.
func (f *File) fits(there byoc.Backend, b *Backend, place string) error {
	is := byoc.DeviceOf(there)
	if b.Device != "" && b.Device != is {
		return &Error{f.name, place + ".device", "the backend that is registered runs on " + is}
	}
	if _, said := f.Devices[is]; is != byoc.Host && !said && !there.Probe().Usable {
		return &Error{f.name, "devices", "says nothing of " + is + ", which is not here to be measured: name its copies"}
	}
	return nil
}

// register makes a backend of what the file says.
func (f *File) register(name string, b *Backend, place string) (byoc.Backend, error) {
	if len(b.Operators) == 0 {
		return nil, &Error{f.name, place + ".operators", "there are none, and no backend of this name is registered: " +
			"it could run nothing"}
	}
	own := made{name: name, source: f.source, said: b}
	var there byoc.Backend = &own
	if b.Device != "" && b.Device != byoc.Host {
		there = &remote{made: own, device: b.Device}
	}
	if err := byoc.Register(there); err != nil {
		return nil, &Error{f.name, place, err.Error()}
	}
	return there, nil
}

// costs are what copies take; nil where nothing is said.
func (d Device) costs() byoc.CopyCosts {
	var costs byoc.CopyCosts
	for _, c := range d.Copies {
		costs = append(costs, byoc.CopyPoint{Bytes: c.Bytes, To: c.To, From: c.From})
	}
	return costs
}
