// SPDX-License-Identifier: Apache-2.0

// Package declared is for devices and libraries that are described and need not be there: a file says what they can run
// and how fast, and networks are planned by that.
//
// What comes in: a file of costs (docs/devices.md). What goes out: backends in the registry, for those that nobody has
// registered, and what the file says of costs, copies and memory as a byoc.Declaration of each.
package declared

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
)

// Version is that of the form of such files.
const Version = 1

// File is what a file of costs says.
type File struct {
	Version  int                `json:"version"`
	Devices  map[string]Device  `json:"devices"`
	Backends map[string]Backend `json:"backends"`

	// name is the file's, source the same with a digest.
	name, source string
}

// Device is a device beside the processor, with memory of its own.
type Device struct {
	// Memory is how large that is, in bytes; 0 for enough.
	Memory int64 `json:"memory_bytes"`
	// Copies are what copying so many bytes takes, ascending by size.
	Copies []Copy `json:"copies"`
}

// Copy is one size of which it is known what copying takes, in milliseconds, to the device and from there.
type Copy struct {
	Bytes int64   `json:"bytes"`
	To    float64 `json:"to_ms"`
	From  float64 `json:"from_ms"`
}

// Backend is a backend, registered or not.
type Backend struct {
	// Device is where it runs; "" for the processor, and for a registered backend, which says that by itself.
	Device string `json:"device"`
	Speed
	// Operators are those that it can run, with speeds of their own where they have some. A registered backend says by
	// itself what it can run.
	Operators map[string]Speed `json:"operators"`
	// NoFusion says that each operator is a kernel of its own.
	NoFusion bool `json:"no_fusion"`
}

// Speed is a roofline: a kernel takes what starting it takes, and then the longer one of what computing and what moving
// takes.
type Speed struct {
	// Gflops are 1e9 float32 operations a second, GBps 1e9 bytes a second.
	Gflops float64 `json:"gflops"`
	GBps   float64 `json:"gigabytes_per_second"`
	// Launch is what starting a kernel takes, in milliseconds.
	Launch *float64 `json:"launch_ms"`
}

// over is a speed with what it leaves open taken from another.
func (s Speed) over(general Speed) Speed {
	if s.Gflops == 0 {
		s.Gflops = general.Gflops
	}
	if s.GBps == 0 {
		s.GBps = general.GBps
	}
	if s.Launch == nil {
		s.Launch = general.Launch
	}
	return s
}

// milliseconds are those of a kernel.
func (s Speed) milliseconds(flops, moved float64) float64 {
	ms := max(flops/s.Gflops, moved/s.GBps) / 1e6
	if s.Launch != nil {
		ms += *s.Launch
	}
	return ms
}

// Error says what is wrong with a file of costs, and where.
type Error struct{ File, Place, Reason string }

func (e *Error) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("%s is no file of costs: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s is no file of costs: %s: %s", e.File, e.Place, e.Reason)
}

// Exception is what Python is told.
func (e *Error) Exception() bridge.Exception {
	return bridge.Exception{Class: "InputError", File: e.File}
}

// Read reads a file of costs. The error is an *Error, or one of the system's.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(filepath.Base(path), text)
}

func parse(name string, text []byte) (*File, error) {
	digest := sha256.Sum256(text)
	f := &File{name: name, source: fmt.Sprintf("%s (SHA-256 %x...)", name, digest[:6])}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	fault := func(place, format string, args ...any) error {
		return &Error{name, place, fmt.Sprintf(format, args...)}
	}
	if err := decoder.Decode(f); err != nil {
		return nil, fault("", "%v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fault("", "something follows the JSON value")
	}
	if f.Version != Version {
		return nil, fault("version", "is %d; this Collage reads %d", f.Version, Version)
	}
	if len(f.Backends) == 0 {
		return nil, fault("backends", "there are none")
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Devices)) {
		if place, reason := f.Devices[kind].fault(); reason != "" {
			return nil, fault("devices."+kind+place, "%s", reason)
		}
		if kind == byoc.Host || kind == "" {
			return nil, fault("devices", "%q is no device beside the processor", kind)
		}
	}
	for _, backend := range slices.Sorted(maps.Keys(f.Backends)) {
		b := f.Backends[backend]
		if place, reason := b.Speed.fault(); reason != "" {
			return nil, fault("backends."+backend+place, "%s", reason)
		}
		for _, op := range slices.Sorted(maps.Keys(b.Operators)) {
			if place, reason := b.Operators[op].over(b.Speed).fault(); reason != "" {
				return nil, fault("backends."+backend+".operators."+op+place, "%s", reason)
			}
		}
		if _, there := f.Devices[b.Device]; !there && b.Device != "" && b.Device != byoc.Host {
			return nil, fault("backends."+backend+".device", "%q is none of the file's devices", b.Device)
		}
	}
	return f, nil
}

// number says what is wrong with one that is to be above least, or may be that; "" for nothing.
func number(x float64, positive bool) string {
	if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 || positive && x == 0 {
		if positive {
			return fmt.Sprintf("is %v; name a number above 0", x)
		}
		return fmt.Sprintf("is %v; name a number from 0 on", x)
	}
	return ""
}

func (s Speed) fault() (place, reason string) {
	if reason := number(s.Gflops, true); reason != "" {
		return ".gflops", reason
	}
	if reason := number(s.GBps, true); reason != "" {
		return ".gigabytes_per_second", reason
	}
	if s.Launch != nil {
		return ".launch_ms", number(*s.Launch, false)
	}
	return "", ""
}

func (d Device) fault() (place, reason string) {
	if d.Memory < 0 {
		return ".memory_bytes", fmt.Sprintf("is %d", d.Memory)
	}
	if len(d.Copies) == 0 {
		return ".copies", "there are none: name what copying takes at one size at least"
	}
	for i, c := range d.Copies {
		at := fmt.Sprintf(".copies[%d]", i)
		if c.Bytes < 1 || i > 0 && c.Bytes <= d.Copies[i-1].Bytes {
			return at + ".bytes", fmt.Sprintf("is %d; sizes ascend, from 1 on", c.Bytes)
		}
		if reason := number(c.To, false); reason != "" {
			return at + ".to_ms", reason
		}
		if reason := number(c.From, false); reason != "" {
			return at + ".from_ms", reason
		}
	}
	return "", ""
}
