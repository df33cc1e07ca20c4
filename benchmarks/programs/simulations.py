"""Simulations and numerical methods from textbooks, each as somebody would write it first."""

from typing import Any

import adze as az

Vector = az.Array[az.f64, "n"]
Places = az.Array[az.i64, "n"]
Grid = az.Array[az.f64, "n m"]
Block = az.Array[az.f64, "n m l"]
Square = az.Array[az.f64, "n n"]


# Stencils


@az.program
def line_stencil(x: Vector) -> Vector:
    """Five points with the weights of a smoother; around them there are zeros."""
    return az.stencil(lambda w: (w[-2] + 4.0 * w[-1] + 6.0 * w[0] + 4.0 * w[1] + w[2]) / 16.0, 0.0, x)


@az.program
def line_stencil_squares(x: Vector) -> az.f64:
    return az.sum(line_stencil(x) ** 2)


@az.program
def plane_stencil(u: Grid) -> Grid:
    """Nine points; outside of the grid is the nearest of its points."""

    def smooth(w: Any) -> az.Expr:
        sides = w[-1, 0] + w[1, 0] + w[0, -1] + w[0, 1]
        corners = w[-1, -1] + w[-1, 1] + w[1, -1] + w[1, 1]
        return (4.0 * w[0, 0] + 2.0 * sides + corners) / 16.0

    return az.stencil(smooth, "clamp", u)


@az.program
def plane_stencil_squares(u: Grid) -> az.f64:
    return az.sum(plane_stencil(u) ** 2)


@az.program
def block_stencil(u: Block) -> Block:
    """Seven points on a torus."""

    def laplacian(w: Any) -> az.Expr:
        around = w[-1, 0, 0] + w[1, 0, 0] + w[0, -1, 0] + w[0, 1, 0] + w[0, 0, -1] + w[0, 0, 1]
        return around - 6.0 * w[0, 0, 0]

    return az.stencil(laplacian, "wrap", u)


@az.program
def block_stencil_squares(u: Block) -> az.f64:
    return az.sum(block_stencil(u) ** 2)


# Partial differential equations in time


@az.program
def cooled(start: Grid, steps: az.i64) -> Grid:
    """The heat equation on a plate whose border keeps its temperature; few of the steps are kept."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        inside = u[1:-1, 1:-1] + 0.1 * (around - 4.0 * u[1:-1, 1:-1])
        return az.update(u, (slice(1, -1), slice(1, -1)), inside)

    return az.fori_loop(0, steps, step, start, checkpoint="sqrt")


@az.program
def cooled_squares(start: Grid, steps: az.i64) -> az.f64:
    return az.sum(cooled(start, steps) ** 2)


@az.program
def wave(start: Grid, speed: Grid, steps: az.i64) -> Grid:
    """The wave equation with a speed at each point and zeros around; few of the steps are kept."""

    def step(_: az.Expr, state: Any) -> Any:
        u, before = state
        p = az.pad(u, 1)
        laplacian = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u
        return 2.0 * u - before + 0.1 * speed**2 * laplacian, u

    return az.fori_loop(0, steps, step, (start, start), checkpoint="sqrt")[0]


@az.program
def wave_squares(start: Grid, speed: Grid, steps: az.i64) -> az.f64:
    return az.sum(wave(start, speed, steps) ** 2)


# Deblurring


def blurred(image: az.Expr, kernel: az.Expr) -> az.Expr:
    """The mean of the 9 x 9 points around each, with the weights of the kernel and zeros around the image."""
    padded = az.pad(image, 4)
    return az.generate(image.shape, lambda y, x: az.sum(kernel * padded[y : y + 9, x : x + 9]))


@az.program
def misfit(image: Grid, kernel: az.Array[az.f64, "9 9"], observed: Grid) -> az.f64:
    """How far a blurred image is from what was observed."""
    return 0.5 * az.sum((blurred(image, kernel) - observed) ** 2)


@az.program
def deblurred(image: Grid, kernel: az.Array[az.f64, "9 9"], observed: Grid, steps: az.i64) -> Grid:
    """Steps of gradient descent from an image to one that gives what was observed when it is blurred."""
    slope = az.grad(lambda u: 0.5 * az.sum((blurred(u, kernel) - observed) ** 2))
    return az.fori_loop(0, steps, lambda _, u: u - 0.5 * slope(u), image)


# Ensembles


@az.program
def predators(
    prey: Vector, hunters: Vector, births: Vector, catches: Vector, dt: az.f64, steps: az.i64
) -> tuple[Vector, Vector]:
    """Lotka-Volterra for many animals' rates, each integrated by the method of Runge and Kutta."""

    def member(x: az.Expr, y: az.Expr, birth: az.Expr, catch: az.Expr) -> Any:
        def slope(x: az.Expr, y: az.Expr) -> Any:
            return birth * x - catch * x * y, catch * x * y - y

        def step(_: az.Expr, state: Any) -> Any:
            x, y = state
            a, b = slope(x, y)
            c, d = slope(x + dt / 2 * a, y + dt / 2 * b)
            e, f = slope(x + dt / 2 * c, y + dt / 2 * d)
            g, h = slope(x + dt * e, y + dt * f)
            return x + dt / 6 * (a + 2 * c + 2 * e + g), y + dt / 6 * (b + 2 * d + 2 * f + h)

        return az.fori_loop(0, steps, step, (x, y))

    return az.map(member, prey, hunters, births, catches)


@az.program
def predators_squares(
    prey: Vector, hunters: Vector, births: Vector, catches: Vector, dt: az.f64, steps: az.i64
) -> az.f64:
    x, y = predators(prey, hunters, births, catches, dt, steps)
    return az.sum(x**2) + az.sum(y**2)


# Graphs


@az.program
def ranks(
    source: az.Array[az.i64, "e"], target: az.Array[az.i64, "e"], weights: az.Array[az.f64, "e"], jump: Vector
) -> Vector:
    """PageRank of a list of edges: 50 steps from equal ranks; the weights of a page's links are made to sum to 1."""
    n = jump.shape[0]
    shares = weights / az.bincount(source, weights, length=n)[source]

    def step(_: az.Expr, rank: az.Expr) -> az.Expr:
        return 0.15 * jump + 0.85 * az.bincount(target, shares * rank[source], length=n)

    return az.fori_loop(0, 50, step, az.full(n, 1.0 / n))


@az.program
def ranks_squares(
    source: az.Array[az.i64, "e"], target: az.Array[az.i64, "e"], weights: az.Array[az.f64, "e"], jump: Vector
) -> az.f64:
    return az.sum((jump.shape[0] * ranks(source, target, weights, jump)) ** 2)


@az.program
def row_ranks(
    rows: az.Array[az.i64, "n+1"], source: az.Array[az.i64, "e"], shares: az.Array[az.f64, "e"], jump: Vector
) -> Vector:
    """PageRank of compressed rows: those of a page have the pages that link to it, with their shares."""
    n = jump.shape[0]

    def step(_: az.Expr, rank: az.Expr) -> az.Expr:
        def page(i: az.Expr) -> az.Expr:
            links = az.generate(rows[i + 1] - rows[i], lambda k: shares[rows[i] + k] * rank[source[rows[i] + k]])
            return 0.15 * jump[i] + 0.85 * az.sum(links)

        return az.generate(n, page)

    return az.fori_loop(0, 50, step, az.full(n, 1.0 / n))


@az.program
def row_ranks_squares(
    rows: az.Array[az.i64, "n+1"], source: az.Array[az.i64, "e"], shares: az.Array[az.f64, "e"], jump: Vector
) -> az.f64:
    return az.sum((jump.shape[0] * row_ranks(rows, source, shares, jump)) ** 2)


@az.program
def shortest(lengths: Square) -> Square:
    """The lengths of the shortest ways between all pairs of nodes, by Floyd and Warshall."""
    n = lengths.shape[0]
    return az.fori_loop(0, n, lambda k, d: az.minimum(d, d[:, k, None] + d[k]), lengths)


@az.program
def shortest_sum(lengths: Square) -> az.f64:
    return az.sum(shortest(lengths))


# Cells


@az.program
def life(start: az.Array[az.i32, "n m"], steps: az.i64) -> az.Array[az.i32, "n m"]:
    """Generations of Conway's game of life on a torus."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        rows = az.roll(u, 1, 0) + u + az.roll(u, -1, 0)
        around = az.roll(rows, 1, 1) + rows + az.roll(rows, -1, 1) - u
        return ((around == 3) | ((around == 2) & (u == 1))).astype(az.i32)

    return az.fori_loop(0, steps, step, start)


# An implicit method


def tridiagonal(lower: az.Expr, diagonal: az.Expr, upper: az.Expr, right: az.Expr) -> az.Expr:
    """The solution of a system with a matrix of three diagonals, by Thomas's algorithm."""

    def forward(state: Any, row: Any) -> Any:
        c, d = state
        low, middle, up, r = row
        pivot = middle - low * c
        state = up / pivot, (r - low * d) / pivot
        return state, state

    _, (c, d) = az.scan_loop(forward, (0.0, 0.0), (lower, diagonal, upper, right))

    def backward(x: az.Expr, row: Any) -> Any:
        c, d = row
        x = d - c * x
        return x, x

    return az.flip(az.scan_loop(backward, 0.0, (az.flip(c), az.flip(d)))[1])


@az.program
def implicit(start: Vector, rate: az.f64, dt: az.f64, steps: az.i64) -> Vector:
    """Diffusion with a reaction, by implicit Euler: in each step three of Newton's method, each with a solve."""
    n = start.shape[0]

    def step(_: az.Expr, old: az.Expr) -> az.Expr:
        def newton(_: az.Expr, u: az.Expr) -> az.Expr:
            p = az.pad(u, 1)
            flow = rate * (p[:-2] - 2.0 * u + p[2:])
            residual = u - old - dt * (flow + u - u**3)
            side = az.full(n, -dt * rate)
            middle = 1.0 - dt * (-2.0 * rate + 1.0 - 3.0 * u**2)
            return u - tridiagonal(side, middle, side, residual)

        return az.fori_loop(0, 3, newton, old)

    return az.fori_loop(0, steps, step, start)


@az.program
def implicit_squares(start: Vector, rate: az.f64, dt: az.f64, steps: az.i64) -> az.f64:
    return az.sum(implicit(start, rate, dt, steps) ** 2)


# Tables


@az.program
def interpolated(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> Vector:
    """Linear interpolation in a table."""
    i = az.clip(az.searchsorted(xs, points, side="right") - 1, 0, xs.shape[0] - 2)
    t = (points - xs[i]) / (xs[i + 1] - xs[i])
    return (1.0 - t) * ys[i] + t * ys[i + 1]


@az.program
def interpolated_squares(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum(interpolated(points, xs, ys) ** 2)


@az.program
def looked_up(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> Vector:
    """The same, point by point with a binary search by hand."""

    def at(x: az.Expr) -> az.Expr:
        def halve(state: Any) -> Any:
            low, high = state
            middle = (low + high) // 2
            right = xs[middle] <= x
            return az.where(right, middle, low), az.where(right, high, middle)

        i, _ = az.while_loop(lambda s: s[1] - s[0] > 1, halve, (0, xs.shape[0] - 1))
        t = (x - xs[i]) / (xs[i + 1] - xs[i])
        return (1.0 - t) * ys[i] + t * ys[i + 1]

    return az.map(at, points)


@az.program
def looked_up_squares(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum(looked_up(points, xs, ys) ** 2)


# Bodies

Bodies = az.Array[az.f64, "n 3"]


@az.program
def bodies(places: Bodies, speeds: Bodies, masses: Vector, dt: az.f64, steps: az.i64) -> tuple[Bodies, Bodies]:
    """Bodies that attract each other, by the leapfrog method."""

    def forces(x: az.Expr) -> az.Expr:
        def force(p: az.Expr) -> az.Expr:
            def pull(q: az.Expr, m: az.Expr) -> az.Expr:
                d = q - p
                return m * d / (az.sum(d**2) + 0.01) ** 1.5

            return az.sum(az.map(pull, x, masses), 0)

        return az.map(force, x)

    def step(_: az.Expr, state: Any) -> Any:
        x, v = state
        v = v + 0.5 * dt * forces(x)
        x = x + dt * v
        return x, v + 0.5 * dt * forces(x)

    return az.fori_loop(0, steps, step, (places, speeds))


@az.program
def bodies_squares(places: Bodies, speeds: Bodies, masses: Vector, dt: az.f64, steps: az.i64) -> az.f64:
    x, v = bodies(places, speeds, masses, dt, steps)
    return az.sum(x**2) + az.sum(v**2)


# Filters


@az.program
def kalman(
    seen: az.Array[az.f64, "t 2"],
    motion: az.Array[az.f64, "4 4"],
    noise: az.Array[az.f64, "4 4"],
    view: az.Array[az.f64, "2 4"],
    error: az.Array[az.f64, "2 2"],
) -> az.f64:
    """The negative logarithm of the likelihood of what was seen, by the Kalman filter."""

    def step(state: Any, z: az.Expr) -> Any:
        x, p, total = state
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = az.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = z - view @ x
        total = total + 0.5 * (r @ inverse @ r + az.log(determinant))
        return (x + gain @ r, p - gain @ view @ p, total), None

    return az.scan_loop(step, (az.zeros(4), az.eye(4), 0.0), seen)[0][2]


# Options


@az.program
def asian(spot: az.f64, volatility: az.f64, rate: az.f64, strike: az.f64, normals: Grid) -> az.f64:
    """The price of an option on the mean of a price that moves as Black and Scholes say; all paths at once."""
    dt = 1.0 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * az.sqrt(dt) * normals
    prices = spot * az.exp(az.cumsum(moves, 1))
    return az.exp(-rate) * az.mean(az.maximum(az.mean(prices, 1) - strike, 0.0))


@az.program
def asian_by_paths(spot: az.f64, volatility: az.f64, rate: az.f64, strike: az.f64, normals: Grid) -> az.f64:
    """The same, path by path and step by step."""
    steps = normals.shape[1]
    dt = 1.0 / steps

    def path(z: az.Expr) -> az.Expr:
        def step(i: az.Expr, state: Any) -> Any:
            price, total = state
            price = price * az.exp((rate - 0.5 * volatility**2) * dt + volatility * az.sqrt(dt) * z[i])
            return price, total + price

        return az.maximum(az.fori_loop(0, steps, step, (spot, 0.0))[1] / steps - strike, 0.0)

    return az.exp(-rate) * az.mean(az.map(path, normals))


# Matrices


@az.program
def lu(matrix: Square) -> tuple[Square, Square]:
    """The factors of a matrix without pivots, by Gauss's elimination with slices."""
    n = matrix.shape[0]

    def column(k: az.Expr, a: az.Expr) -> az.Expr:
        factors = a[k + 1 :, k] / a[k, k]
        a = az.update(a, (slice(k + 1, None), k), factors)
        rest = a[k + 1 :, k + 1 :] - az.outer(factors, a[k, k + 1 :])
        return az.update(a, (slice(k + 1, None), slice(k + 1, None)), rest)

    both = az.fori_loop(0, n - 1, column, matrix)
    return az.tril(both, -1) + az.eye(n), az.triu(both)


@az.program
def lu_squares(matrix: Square) -> az.f64:
    lower, upper = lu(matrix)
    return az.sum(lower**2) + az.sum(upper**2)


@az.program
def qr(matrix: Square) -> tuple[Square, Square]:
    """An orthogonal and a triangular factor, by the method of Gram and Schmidt as modified."""
    n = matrix.shape[0]

    def column(k: az.Expr, state: Any) -> Any:
        q, r = state
        length = az.sqrt(az.sum(q[:, k] ** 2))
        unit = q[:, k] / length
        row = az.where(az.iota(n) > k, unit @ q, 0.0)
        q = az.update(q - az.outer(unit, row), (slice(None), k), unit)
        return q, az.update(az.update(r, k, row), (k, k), length)

    return az.fori_loop(0, n, column, (matrix, az.zeros((n, n))))


@az.program
def qr_cubes(matrix: Square) -> az.f64:
    q, r = qr(matrix)
    return az.sum(q**3) + az.sum(r**3)
