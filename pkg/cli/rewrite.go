package cli

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// words are the arguments of a call in one canonical form: which verb, the options
// as --name=value, the arguments, what follows "--". go-flags never sees a
// shortened option, an option's value as a word of its own, or an argument that
// begins with "-" before "--".
type words struct {
	verb    *verb
	options []string
	values  map[string][]string // by long name; a flag has one "" each time
	args    []string
	rest    []string
	action  string // help, version or man, as soon as one is met
}

var (
	optionalNumber = regexp.MustCompile(`^-?[0-9]+$`)
	negativeNumber = regexp.MustCompile(`^-[0-9]+$|^-[0-9]*\.[0-9]+$`)
)

// rewrite reads the arguments once, from left to right, so that the first fault
// is the one reported.
func (m *model) rewrite(args []string) (*words, error) {
	w := &words{verb: m.root, values: make(map[string][]string)}
	for len(args) > 0 && w.action == "" {
		word := args[0]
		args = args[1:]
		var err error
		switch {
		case word == "--":
			if w.verb.decl.Remainder != "" {
				w.rest = append([]string{}, args...)
				return w, nil
			}
			for _, a := range args {
				if err := m.argument(w, a); err != nil {
					return w, err
				}
			}
			return w, nil
		case strings.HasPrefix(word, "--"):
			name, value, joined := strings.Cut(word[2:], "=")
			var o *option
			if o, err = m.long(w, name); o == nil && strings.Contains(word, " ") {
				// A prompt that happens to begin with dashes, not a misspelt option.
				err = m.argument(w, word)
			} else if err == nil {
				if !joined {
					args, err = m.separate(w, o, "--"+o.LongName, args)
				} else if o.flag {
					err = Usage("option --%s takes no value", o.LongName)
				} else {
					err = w.set(o, value)
				}
			}
		case len(word) > 1 && word[0] == '-' && !negativeNumber.MatchString(word):
			if strings.Contains(word, " ") && m.short(w, word[1:]) == nil {
				err = m.argument(w, word)
			} else {
				args, err = m.cluster(w, word[1:], args)
			}
		default:
			err = m.argument(w, word)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// argument takes a word that is no option: the verb, or an argument.
func (m *model) argument(w *words, word string) error {
	if w.verb == m.root && len(m.verbs) > 0 && len(w.args) == 0 {
		v := m.find(word)
		if v == nil {
			var names []string
			for _, v := range m.verbs {
				if !v.decl.Hidden {
					names = append(names, v.name)
				}
			}
			return suggest(Usage("unknown command %s", quote(word)), word, names)
		}
		w.verb = v
		return nil
	}
	w.args = append(w.args, word)
	return nil
}

// long finds the option of a long name or of a unique prefix of one.
func (m *model) long(w *words, name string) (*option, error) {
	own := w.verb.options
	if w.verb != m.root {
		own = append(slices.Clone(own), m.root.options...)
	}
	if i := slices.IndexFunc(own, func(o *option) bool { return o.LongName == name }); i >= 0 {
		return own[i], nil
	}
	if i := slices.IndexFunc(m.shared, func(o *option) bool { return o.LongName == name }); i >= 0 {
		return m.shared[i], nil
	}
	if name != "" {
		if o := bound(own, name, w.verb.decl.Prefixes, m.tool.Prefixes); o != nil {
			return o, nil
		}
		for _, set := range [][]*option{visible(own), visible(m.shared)} {
			var found []*option
			for _, o := range set {
				if strings.HasPrefix(o.LongName, name) {
					found = append(found, o)
				}
			}
			if len(found) == 1 {
				return found[0], nil
			}
			if len(found) > 1 {
				var names []string
				for _, o := range found {
					names = append(names, "--"+o.LongName)
				}
				return nil, Usage("option --%s could be %s", name, alternatives(names))
			}
		}
	}
	var names []string
	for _, o := range visible(append(slices.Clone(own), m.shared...)) {
		names = append(names, "--"+o.LongName)
	}
	return nil, suggest(Usage("unknown option %s", quoteOption("--"+name)), "--"+name, names)
}

// bound finds the option that a prefix is bound to by the tool's tables.
func bound(options []*option, name string, tables ...map[string]string) *option {
	for _, table := range tables {
		for prefix, target := range table {
			if !strings.HasPrefix(name, prefix) || !strings.HasPrefix(target, name) {
				continue
			}
			for _, o := range options {
				if o.LongName == target {
					return o
				}
			}
		}
	}
	return nil
}

// short finds the option of the first letter of a cluster.
func (m *model) short(w *words, cluster string) *option {
	letter, _ := utf8.DecodeRuneInString(cluster)
	for _, set := range [][]*option{w.verb.options, m.root.options, m.shared} {
		for _, o := range set {
			if o.ShortName == letter && letter != utf8.RuneError {
				return o
			}
		}
	}
	return nil
}

// cluster takes a word of short options; the value of the last may follow in the
// same word or in the next.
func (m *model) cluster(w *words, cluster string, args []string) ([]string, error) {
	for cluster != "" && w.action == "" {
		o := m.short(w, cluster)
		letter, n := utf8.DecodeRuneInString(cluster)
		if o == nil {
			return args, Usage("unknown option %s", quoteOption("-"+cluster[:n]))
		}
		cluster = cluster[n:]
		if o.flag || cluster == "" {
			var err error
			if args, err = m.separate(w, o, "-"+string(letter), args); err != nil {
				return args, err
			}
			continue
		}
		return args, w.set(o, strings.TrimPrefix(cluster, "="))
	}
	return args, nil
}

// separate takes an option whose value, if it has one, is the next word, whatever
// that word looks like.
func (m *model) separate(w *words, o *option, spelt string, args []string) ([]string, error) {
	switch {
	case o.flag:
		w.values[o.LongName] = append(w.values[o.LongName], "")
		w.options = append(w.options, "--"+o.LongName)
		if o.LongName == "help" || o.LongName == "version" || o.LongName == "man" {
			if slices.Contains(m.shared, o) {
				w.action = o.LongName
			}
		}
	case o.OptionalArgument && (len(args) == 0 || !optionalNumber.MatchString(args[0])):
		for _, value := range o.OptionalValue {
			if err := w.set(o, value); err != nil {
				return args, err
			}
		}
	case len(args) == 0:
		return args, Usage("option %s needs a value", spelt)
	default:
		return args[1:], w.set(o, args[0])
	}
	return args, nil
}

// set records a value after it has been found to be one.
func (w *words) set(o *option, value string) error {
	canonical, err := o.check(value)
	if err != nil {
		return Usage("option --%s: %s: %w", o.LongName, quote(value), err)
	}
	w.values[o.LongName] = append(w.values[o.LongName], value)
	w.options = append(w.options, "--"+o.LongName+"="+unquotable(canonical))
	return nil
}

// argv is what go-flags gets.
func (w *words) argv() []string {
	var argv []string
	if w.verb.name != "" {
		argv = append(argv, w.verb.name)
	}
	argv = append(argv, w.options...)
	argv = append(argv, "--")
	return append(argv, w.args...)
}

// suggest adds a hint if a known word is close to the one that was typed.
func suggest(err error, typed string, known []string) error {
	if len(typed) > 64 {
		return err
	}
	word := strings.TrimLeft(typed, "-")
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, strings.TrimLeft(k, "-")); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return err
	}
	return WithHint(err, "did you mean %s?", best)
}

// distance is the number of single-byte edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// quoteOption shows an option plainly when it is plain.
func quoteOption(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" {
		return text
	}
	return quote(text)
}

// alternatives joins words as in "a, b or c".
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
