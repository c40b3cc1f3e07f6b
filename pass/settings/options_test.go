// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/options.md anew")

const optionsDocument = "../../docs/options.md"

// described is the table of options in docs/options.md.
func described() string {
	names := map[Part]string{Placing: "What may be placed where, and how it is measured",
		Rounding: "In which types parts may be computed", Searching: "How far the search goes"}
	kinds := map[Kind]string{Text: "text", Texts: "list of texts", Integer: "whole number", Number: "number",
		Truth: "true or false"}
	var b strings.Builder
	part := Part("")
	for _, o := range Options() {
		if o.Part != part {
			part = o.Part
			fmt.Fprintf(&b, "\n## %s\n\n| option | type | default | flag | meaning |\n| --- | --- | --- | --- | --- |\n",
				names[part])
		}
		value, flagName := "", ""
		if list, ok := o.Default.([]string); ok {
			value = strings.Join(list, ",")
		} else if o.Default != nil {
			value = fmt.Sprint(o.Default)
		}
		if o.Flag != "" {
			flagName = "`--" + o.Flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", o.Name, kinds[o.Kind()], value, flagName, o.Described())
	}
	return b.String()
}

func TestDocumentHasTheOptions(t *testing.T) {
	text, err := os.ReadFile(optionsDocument)
	require.NoError(t, err)
	head, _, found := strings.Cut(string(text), "\n## ")
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(optionsDocument, []byte(head+described()), 0o644))
		return
	}
	assert.Equal(t, described(), strings.TrimPrefix(string(text), head), "go test ./pass/settings -update writes it anew")
}

// notOptions are the fields of Config that say something about a call and nothing about a placement.
var notOptions = []string{"build_timeout_ns", "run_timeout_ns", "memory_limit_bytes", "overhead_ms", "verify",
	"listener", "show_progress", "module_name", "-", ""}

func TestEveryFieldIsAnOption(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Options() {
		assert.False(t, seen[o.Name], o.Name)
		seen[o.Name] = true
		assert.NotEmpty(t, o.Kind())
		assert.NotContains(t, o.Help()+o.Described(), "{")
		if o.Flag != "" && o.Kind() != Truth {
			assert.Equal(t, 2, strings.Count(o.Meaning, "`"), "%s: what its value is called", o.Name)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(Config{})) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !seen[name] {
			assert.Contains(t, notOptions, name, "the field %s of Config is no option", field.Name)
		}
	}
}
