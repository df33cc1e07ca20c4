/* Programs over lists and trees by hand (functions.py): values by recursion, gradients by a log with one record for a run
   of straight code. Lists and trees are cells in the order in which they are made. Sums of gradients are given, not the
   gradients, as by all who take part.

   The memory of a log is kept from call to call. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static void *grown(void *memory, size_t *room, size_t bytes) {
  if (*room < bytes) {
    free(memory);
    memory = malloc(*room = 2 * bytes);
  }
  return memory;
}

/* dot: lists */

typedef struct list { double head; struct list *tail; } list;

EXPORT list *make_list(const double *x, int64_t n) {
  list *all = malloc((n + 1) * sizeof(list));
  for (int64_t i = 0; i < n; i++) all[i] = (list){x[i], all + i + 1};
  if (n) all[n - 1].tail = NULL;
  return n ? all : NULL;
}

EXPORT double dot(const list *x, const list *y) {
  if (!x || !y) return 0;
  return x->head * y->head + dot(x->tail, y->tail);
}

typedef struct { double x, y; } product;
static product *products;
static size_t products_room, products_count;

static double dot_logged(const list *x, const list *y) {
  if (!x || !y) return 0;
  products[products_count++] = (product){x->head, y->head};
  return x->head * y->head + dot_logged(x->tail, y->tail);
}

EXPORT void dot_gradient(const list *x, const list *y, int64_t n, double *out) {
  products = grown(products, &products_room, n * sizeof(product));
  products_count = 0;
  out[0] = dot_logged(x, y);
  double dx = 0, dy = 0;
  for (size_t k = products_count; k-- > 0;) dx += products[k].y, dy += products[k].x;
  out[1] = dx, out[2] = dy;
}

/* tree: the sum of x sin x over leaves */

typedef struct tree { double value; struct tree *left, *right; } tree;
static tree *tree_cells;

static tree *part(const double *x, int64_t n) {
  tree *own = tree_cells++;
  if (n == 1) *own = (tree){x[0], NULL, NULL};
  else {
    own->value = 0;
    own->left = part(x, n / 2);
    own->right = part(x + n / 2, n - n / 2);
  }
  return own;
}

EXPORT tree *make_tree(const double *x, int64_t n) {
  tree_cells = malloc(2 * n * sizeof(tree));
  return part(x, n);
}

EXPORT double tree_sum(const tree *t) {
  return t->left ? tree_sum(t->left) + tree_sum(t->right) : t->value * sin(t->value);
}

typedef struct { double slope; int64_t left, right; } node; /* a leaf's slope; the records of a sum's terms */
static node *nodes;
static double *slots;
static size_t nodes_room, slots_room;
static int64_t nodes_count;

static double tree_logged(const tree *t, int64_t *place) {
  if (!t->left) {
    double s = sin(t->value);
    nodes[*place = nodes_count++] = (node){s + t->value * cos(t->value), -1, -1};
    return t->value * s;
  }
  int64_t left, right;
  double sum = tree_logged(t->left, &left) + tree_logged(t->right, &right);
  nodes[*place = nodes_count++] = (node){0, left, right};
  return sum;
}

EXPORT void tree_gradient(const tree *t, int64_t n, double *out) {
  nodes = grown(nodes, &nodes_room, 2 * n * sizeof(node));
  slots = grown(slots, &slots_room, 2 * n * sizeof(double));
  nodes_count = 0;
  int64_t root;
  out[0] = tree_logged(t, &root);
  for (int64_t k = 0; k < nodes_count; k++) slots[k] = 0;
  slots[root] = 1;
  double sum = 0;
  for (int64_t k = nodes_count - 1; k >= 0; k--) {
    node own = nodes[k];
    if (own.left < 0) sum += slots[k] * own.slope;
    else slots[own.left] += slots[k], slots[own.right] += slots[k];
  }
  out[1] = sum;
}

/* particles: each falls by itself */

typedef struct { double x, y, u, v; } particle;
static particle *states;
static size_t states_room;

static particle stepped(particle p) {
  double pull = 1 / (1 + p.x * p.x + p.y * p.y);
  double u = p.u - 0.01 * pull * p.x, v = p.v - 0.01 * pull * p.y;
  return (particle){p.x + 0.01 * u, p.y + 0.01 * v, u, v};
}

EXPORT double fall(const particle *start, int64_t count, int64_t steps) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    particle p = start[i];
    for (int64_t k = 0; k < steps; k++) p = stepped(p);
    sum += p.x * p.y;
  }
  return sum;
}

EXPORT void fall_gradient(const particle *start, int64_t count, int64_t steps, double *out) {
  states = grown(states, &states_room, (steps + 1) * sizeof(particle));
  out[0] = out[1] = 0;
  for (int64_t i = 0; i < count; i++) {
    particle p = start[i];
    for (int64_t k = 0; k < steps; k++) states[k] = p, p = stepped(p);
    out[0] += p.x * p.y;
    particle g = {p.y, p.x, 0, 0};
    for (int64_t k = steps - 1; k >= 0; k--) {
      particle s = states[k];
      double pull = 1 / (1 + s.x * s.x + s.y * s.y);
      double u = g.u + 0.01 * g.x, v = g.v + 0.01 * g.y;
      double d = 0.01 * (u * s.x + v * s.y) * pull * pull;
      g = (particle){g.x - 0.01 * pull * u + 2 * d * s.x, g.y - 0.01 * pull * v + 2 * d * s.y, u, v};
    }
    out[1] += g.x + g.y + g.u + g.v;
  }
}

/* quadrature: adaptive Simpson of exp(a x) / (b + x^2) from -1 to 1 */

typedef struct { double a, b; } slope;

static double at(double a, double b, double x) { return exp(a * x) / (b + x * x); }

static double simpson(double a, double b, double low, double high, double fl, double fm, double fh, double whole, double eps) {
  double middle = (low + high) / 2, left = at(a, b, (low + middle) / 2), right = at(a, b, (middle + high) / 2);
  double first = (middle - low) / 6 * (fl + 4 * left + fm), second = (high - middle) / 6 * (fm + 4 * right + fh);
  double off = first + second - whole;
  if (fabs(off) < 15 * eps) return first + second + off / 15;
  return simpson(a, b, low, middle, fl, left, fm, first, eps / 2) +
         simpson(a, b, middle, high, fm, right, fh, second, eps / 2);
}

EXPORT double quadrature(double a, double b, double tolerance) {
  double fl = at(a, b, -1), fm = at(a, b, 0), fh = at(a, b, 1);
  return simpson(a, b, -1, 1, fl, fm, fh, (fl + 4 * fm + fh) / 3, tolerance);
}

/* fibonacci: what a call costs, and a fork */

EXPORT int64_t fibonacci(int64_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
