// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mutant is one small change of one file.
type Mutant struct {
	// File is the path from the module's root, Line and Column where the change stands.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Change says what is done: "< -> <=", "remove x = 1".
	Change string `json:"change"`
	// Source is the line as it was, without blanks around it: with File and Change it names the mutant when lines move.
	Source string `json:"source"`
	// Outcome is what became of it; Reason says why an Equivalent one is that, or which error a Broken one gave.
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`

	// Again counts the mutants of the same File, Source and Change before this one.
	Again int `json:"again,omitempty"`

	path       string // of the file on disk
	start, end int    // the bytes that text replaces
	text       string
}

// id names the mutant whatever lines have moved.
func (m *Mutant) id() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%d", m.File, m.Source, m.Change, m.Again)
}

// String is "pass/place/tree.go:12:3: < -> <=".
func (m *Mutant) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Change)
}

// operators says what an operator is changed into.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC, token.AND: token.OR, token.OR: token.AND,
	token.SHL: token.SHR, token.SHR: token.SHL,
}

// finder walks one file.
type finder struct {
	set     *token.FileSet
	file    string
	path    string
	content []byte
	lines   []string
	found   []*Mutant
}

// find lists all mutants of one file, in its order. What only words a message (an error's, a panic's) is left alone.
func find(path, name string) ([]*Mutant, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	f := &finder{set: set, file: filepath.ToSlash(name), path: path, content: content,
		lines: strings.Split(string(content), "\n")}
	for _, d := range tree.Decls {
		if function, ok := d.(*ast.FuncDecl); ok && function.Body != nil {
			ast.Inspect(function.Body, f.visit)
		}
	}
	slices.SortStableFunc(f.found, func(a, b *Mutant) int { return a.start - b.start })
	seen := map[string]int{}
	for _, m := range f.found {
		id := m.Source + "\x00" + m.Change
		m.Again = seen[id]
		seen[id]++
	}
	return f.found, nil
}

// words are functions whose arguments are for people.
var words = map[string]bool{
	"panic": true, "fmt.Errorf": true, "errors.New": true, "fmt.Sprintf": true, "fmt.Sprint": true,
}

func (f *finder) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.CallExpr:
		if words[f.source(n.Fun)] {
			return false
		}
		f.extremes(n)
	case *ast.IfStmt:
		f.replace(n.Cond, "!("+f.source(n.Cond)+")", "negate "+f.source(n.Cond))
	case *ast.ForStmt:
		if n.Cond != nil {
			// Turned round, a loop is not run at all or does not end; the first is what tells something.
			f.replace(n.Cond, "false && "+f.source(n.Cond), "never loop")
		}
	case *ast.BinaryExpr:
		if to, ok := operators[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
			f.token(n.OpPos, n.Op, to)
		}
	case *ast.IncDecStmt:
		f.token(n.TokPos, n.Tok, operators[n.Tok])
	case *ast.AssignStmt:
		if to, ok := operators[n.Tok]; ok && !isText(n.Rhs[0]) {
			f.token(n.TokPos, n.Tok, to)
		}
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			for _, other := range []int64{value + 1, value - 1} {
				f.replace(n, strconv.FormatInt(other, 10), fmt.Sprintf("%d -> %d", value, other))
			}
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			f.replace(n, other, n.Name+" -> "+other)
		}
	case *ast.BlockStmt:
		f.removals(n.List)
	case *ast.CaseClause:
		f.removals(n.Body)
	case *ast.CommClause:
		f.removals(n.Body)
	}
	return true
}

// extremes swaps min and max.
func (f *finder) extremes(call *ast.CallExpr) {
	if name, ok := call.Fun.(*ast.Ident); ok && len(call.Args) > 1 {
		if other := map[string]string{"min": "max", "max": "min"}[name.Name]; other != "" {
			f.replace(name, other, name.Name+" -> "+other)
		}
	}
}

// removals takes out statements that change something. Declarations stay: without them nothing compiles.
func (f *finder) removals(list []ast.Stmt) {
	for _, s := range list {
		switch n := s.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && (words[f.source(call.Fun)] || f.releases(call)) {
				continue
			}
		case *ast.DeferStmt:
			if f.releases(n.Call) {
				continue
			}
		case *ast.IncDecStmt, *ast.BranchStmt:
		default:
			continue
		}
		text := f.source(s)
		if first, _, more := strings.Cut(text, "\n"); more {
			text = first + " ..."
		}
		// Line breaks stay, so that the numbers of the lines behind it do.
		f.replace(s, "{}"+strings.Repeat("\n", strings.Count(f.source(s), "\n")), "remove "+text)
	}
}

// releases says that the call only gives a handle back before the garbage collector would: no test can see whether it
// is there.
func (f *finder) releases(call *ast.CallExpr) bool {
	return strings.HasSuffix(f.source(call.Fun), ".Release")
}

func (f *finder) token(at token.Pos, from, to token.Token) {
	f.add(at, at+token.Pos(len(from.String())), to.String(), from.String()+" -> "+to.String())
}

func (f *finder) replace(n ast.Node, text, change string) { f.add(n.Pos(), n.End(), text, change) }

func (f *finder) add(from, to token.Pos, text, change string) {
	start, end := f.set.Position(from), f.set.Position(to)
	f.found = append(f.found, &Mutant{File: f.file, Line: start.Line, Column: start.Column,
		Change: strings.Join(strings.Fields(change), " "), Source: strings.TrimSpace(f.lines[start.Line-1]),
		path:  f.path,
		start: start.Offset, end: end.Offset, text: text})
}

func (f *finder) source(n ast.Node) string {
	return string(f.content[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

// isText says that the expression is surely a string: a literal, or a sum with one.
func isText(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING
	case *ast.BinaryExpr:
		return x.Op == token.ADD && (isText(x.X) || isText(x.Y))
	}
	return false
}

// write writes the file with the change to path.
func (m *Mutant) write(path string) error {
	content, err := os.ReadFile(m.path)
	if err != nil {
		return err
	}
	changed := slices.Concat(content[:m.start], []byte(m.text), content[m.end:])
	return os.WriteFile(path, changed, 0o644)
}
