// SPDX-License-Identifier: Apache-2.0

package rig

import "github.com/collage-tvm/collage/byoc"

// Offered is a backend of the tests.
type Offered struct{ Called string }

func (o Offered) Name() string             { return o.Called }
func (o Offered) Description() string      { return "a backend of the tests" }
func (o Offered) Level() byoc.Level        { return byoc.OperatorLevel }
func (o Offered) Patterns() []byoc.Pattern { return nil }
func (o Offered) TakesAnything() bool      { return o.Called == "tvm" }
func (o Offered) MergesRegions() bool      { return o.Called == "lib" }
func (o Offered) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (o Offered) Install() error           { return nil }
func (o Offered) Compiler() string {
	if o.Called == "tvm" {
		return ""
	}
	return o.Called
}
